"""`JsonSchema`: JSON with its schema in a registry, checked against it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from penstock.errors import SerializationError, TopologyError
from penstock.extras import extra
from penstock.serdes.documents import Json, is_pydantic
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.schemas import Reference, Schema, SchemaKind
from penstock.serdes.registry.serde import HEADER, Read, Usage, UsageKeywords, Write
from penstock.serdes.registry.text_serde import TextSerde, compact, given

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class JsonSchema(TextSerde[T]):
    """JSON with a schema registry: `JsonSchema(Order)` for a type, `JsonSchema(schema=…)` for dicts, `JsonSchema()` to read any.

    A type gives its schema itself, or has the one in `schema`: JSON as text, as a dict, or a `Path` to a file. Values are checked
    against the schema when they are written and read (a type's values only by the type); `validate=False` leaves that out.
    The other arguments are those of `Avro`.

    Without a topic it writes plain JSON: `JsonSchema(schema={"type": "object"}).serialize({"b": 1}) == b'{"b":1}'`.
    """

    kind = SchemaKind.JSON

    @overload
    def __init__(
        self: JsonSchema[Any],
        *,
        schema: Any = ...,
        references: Sequence[Reference] = ...,
        validate: bool = ...,
        **usage: Unpack[UsageKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: type[T],
        *,
        schema: Any = ...,
        references: Sequence[Reference] = ...,
        validate: bool = ...,
        **usage: Unpack[UsageKeywords],
    ) -> None: ...
    def __init__(
        self,
        of: Any = Any,
        *,
        schema: Any = None,
        references: Sequence[Reference] = (),
        validate: bool = True,
        **usage: Unpack[UsageKeywords],
    ) -> None:
        extra("json-schema", "jsonschema_rs")
        super().__init__(of, _text(of, schema), references, Usage(**usage))
        self.validate: bool = validate
        Json(of)  # raises for a type without a mapping when the topology is built
        if self.text and not references:
            _validator(Schema(SchemaKind.JSON, self.text), None)

    @property
    def name(self) -> str:
        """The title of the schema."""
        schema = json.loads(self.text or "{}")
        return str(schema.get("title", "")) if isinstance(schema, dict) else ""

    def writer(self, schema: Schema) -> Write:
        """See `RegistrySerde`."""
        encode = Json(self.of).serialize
        if not self.validate:
            return encode
        check = self._check(schema)

        def write(value: Any) -> bytes:
            data = encode(value)
            check(data)
            return data

        return write

    def reader(self, schema_id: int) -> Read:
        """See `RegistrySerde`."""
        decode = Json(self.of).deserialize
        if not self.validate or self.of not in (Any, dict):  # a type's values are checked by reading them
            return lambda data: decode(data[HEADER:])
        check = self._check(self.schema or self.written_with(schema_id))

        def read(data: bytes) -> Any:
            document = data[HEADER:]
            check(document)
            return decode(document)

        return read

    def plain(self) -> tuple[Write, Read]:
        """JSON as it is."""
        codec = Json(self.of)
        return codec.serialize, codec.deserialize

    def _check(self, schema: Schema) -> Callable[[bytes], None]:
        validator = _validator(schema, self.registry)

        def check(document: bytes) -> None:
            try:
                validator.validate(json.loads(document))
            except ValueError as error:  # its own error is one, with the whole document in its text
                where = "/".join(map(str, getattr(error, "instance_path", ())))
                raise SerializationError(f"{getattr(error, 'message', error)}{f' (at {where})' if where else ''}") from None

        return check


def _text(of: Any, schema: Any) -> str:
    """Return the schema as compact JSON; empty if there is none."""
    if schema is None:
        if of in (Any, dict):
            return ""
        return compact(of.model_json_schema() if is_pydantic(of) else _of_type(of))
    return compact(given("JsonSchema", schema))


def _of_type(of: Any) -> Any:
    Json(of)  # raises for a type without a mapping
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(of)}


def _validator(schema: Schema, registry: Registry | None) -> Any:
    """Return the compiled schema, with those that it refers to by name."""
    if registry is None:
        return _compiled(schema, registry)
    return registry.memo(("json", schema), lambda: _compiled(schema, registry))


def _compiled(schema: Schema, registry: Registry | None) -> Any:
    jsonschema_rs = extra("json-schema", "jsonschema_rs")

    try:
        resources = list(_resources(schema, registry))
        known = jsonschema_rs.Registry(resources) if resources else None
        return jsonschema_rs.validator_for(json.loads(schema.text), registry=known)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise TopologyError(f"Invalid JSON schema: {error}") from error


def _resources(schema: Schema, registry: Registry | None) -> Iterator[tuple[str, Any]]:
    for reference in schema.references:
        if registry is None:
            raise TopologyError("A JSON schema with references can be used only where a schema registry is.")
        found = registry.referenced(reference)
        yield reference.name, json.loads(found.text)
        yield from _resources(found, registry)
