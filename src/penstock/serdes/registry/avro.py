"""`Avro`: values in Avro's binary form, with their schema in a registry."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from penstock.errors import SerializationError, TopologyError
from penstock.extras import extra
from penstock.serdes.documents import instances_only, is_pydantic, shape_of
from penstock.serdes.registry.avro_bounds import UnboundedError, check_bounded
from penstock.serdes.registry.avro_types import avro_schema
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.schemas import Reference, Schema, SchemaKind
from penstock.serdes.registry.serde import HEADER, Read, Usage, UsageKeywords, Write
from penstock.serdes.registry.text_serde import TextSerde, compact, given

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")

_MARK = b"\xc3\x01"
_PRINT = 8
_PLAIN_HEADER = len(_MARK) + _PRINT


class Avro(TextSerde[T]):
    r"""Avro with a schema registry: `Avro(Order)` writes and reads an `Order`, `Avro(schema=…)` a dict, `Avro()` reads any dict.

    A dataclass, `msgspec.Struct`, TypedDict or Pydantic model gives its schema itself (`namespace` is that of its record), or
    has the one in `schema`: JSON as text, as a dict, or a `Path` to a file. What was written with another schema is read into
    this one, by Avro's rules. `references` are the schemas that it uses and the registry already has. `subject` is `"topic"`
    (`orders-value`), `"record"` (`com.acme.Order`) or `"topic_record"`. With `register=False`, the registry must have the
    schema; with `use_latest=True`, values are written with the latest schema of the subject. By default, `auto.register.schemas`
    and `use.latest.version` of the settings decide.

    Without a topic it writes Avro's single-object encoding: `Avro(bool).serialize(True)[:2] == b"\xc3\x01"`.
    """

    kind = SchemaKind.AVRO

    @overload
    def __init__(
        self: Avro[Any], *, schema: Any = ..., references: Sequence[Reference] = ..., **usage: Unpack[UsageKeywords]
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: type[T],
        *,
        schema: Any = ...,
        namespace: str = ...,
        references: Sequence[Reference] = ...,
        **usage: Unpack[UsageKeywords],
    ) -> None: ...
    def __init__(
        self,
        of: Any = Any,
        *,
        schema: Any = None,
        namespace: str = "",
        references: Sequence[Reference] = (),
        **usage: Unpack[UsageKeywords],
    ) -> None:
        extra("avro", "fastavro")
        super().__init__(of, _text(of, schema, namespace), references, Usage(**usage))
        if self.text and not references:
            _parsed(Schema(SchemaKind.AVRO, self.text), None)  # raises when the topology is built, not at the first record

    @property
    def name(self) -> str:
        """The full name of the record."""
        return _name(json.loads(self.text)) if self.text else ""

    def writer(self, schema: Schema) -> Write:
        """See `RegistrySerde`."""
        return _writer(_parsed(schema, self.registry), converters(self.of)[0], b"")

    def reader(self, schema_id: int) -> Read:
        """See `RegistrySerde`."""
        found, own = self.written_with(schema_id), self.schema
        try:
            self.require_registry().memo(("bounded", found), lambda: _check_bounded(found, self.registry))
        except UnboundedError as error:
            raise SerializationError(
                f"{self!r} cannot read values of schema {schema_id}: {error}, so that a few bytes could fill the "
                f"memory. Write them with another schema."
            ) from None
        wanted = None if own is None or own.text == found.text else _parsed(own, self.registry)
        return _reader(_parsed(found, self.registry), wanted, converters(self.of)[1], HEADER)

    def plain(self) -> tuple[Write, Read]:
        """Avro's single-object encoding: a mark, the schema's fingerprint, the value."""
        schema = self.schema
        if schema is None:
            raise SerializationError("Avro() can only read topics: it has no schema. Give it the type or the schema to write.")
        parsed = _parsed(schema, self.registry)
        to_plain, from_plain = converters(self.of)
        head = _MARK + _fingerprint(schema)
        read_value = _reader(parsed, None, from_plain, _PLAIN_HEADER)

        def read(data: bytes) -> Any:
            if data[:_PLAIN_HEADER] == head:
                return read_value(data)
            what = "another schema" if data[: len(_MARK)] == _MARK else "no schema"
            raise SerializationError(f"it was written with {what}; only the schema that wrote the keys of a store can read them")

        return _writer(parsed, to_plain, head), read

    def __getstate__(self) -> dict[str, Any]:
        if self.of not in (Any, dict) and not is_pydantic(self.of):
            shape_of(self.of)  # takes from the class what reading has put there, which cannot be pickled
        return super().__getstate__()


def _text(of: Any, schema: Any, namespace: str) -> str:
    """Return the schema as compact JSON; empty if there is none."""
    if schema is None:
        if of in (Any, dict):
            return ""
        return compact(avro_schema(of, namespace))
    if namespace:
        raise TopologyError("Avro(): namespace= is for the schema of a type; schema= has its own.")
    return compact(given("Avro", schema))


def _name(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return schema if isinstance(schema, str) else ""
    name, namespace = str(schema.get("name", schema.get("type", ""))), schema.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _parsed(schema: Schema, registry: Registry | None) -> Any:
    """Return a schema as fastavro takes it, with those that it refers to."""
    return _parsed_with_named(schema, registry)[0]


def _parsed_with_named(schema: Schema, registry: Registry | None) -> tuple[Any, dict[str, Any]]:
    """The same, and the schemas that have names."""
    named: dict[str, Any] = {}
    if registry is None:
        return _parse(schema, registry, named), named
    return registry.memo(("avro", schema), lambda: (_parse(schema, registry, named), named))


def _check_bounded(schema: Schema, registry: Registry | None) -> bool:
    check_bounded(*_parsed_with_named(schema, registry))
    return True


def _parse(schema: Schema, registry: Registry | None, named: dict[str, Any]) -> Any:
    fastavro = extra("avro", "fastavro")

    for reference in schema.references:
        if reference.name not in named:
            if registry is None:
                raise TopologyError("An Avro schema with references can be used only where a schema registry is.")
            _parse(registry.referenced(reference), registry, named)
    try:
        return fastavro.parse_schema(json.loads(schema.text), named)
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise TopologyError(f"Invalid Avro schema: {error}") from error


def _fingerprint(schema: Schema) -> bytes:
    schemas = extra("avro", "fastavro.schema")

    return bytes.fromhex(schemas.fingerprint(schemas.to_parsing_canonical_form(json.loads(schema.text)), "CRC-64-AVRO"))


def _writer(parsed: Any, to_plain: Callable[[Any], Any], head: bytes) -> Write:
    schemaless_writer = extra("avro", "fastavro").schemaless_writer

    if parsed in ("bytes", {"type": "bytes"}):  # Confluent's serializers write them without their size
        return lambda value: head + to_plain(value)

    def write(value: Any) -> bytes:
        buffer = BytesIO()
        if head:
            buffer.write(head)
        schemaless_writer(buffer, parsed, to_plain(value))
        return buffer.getvalue()

    return write


def _reader(parsed: Any, wanted: Any, from_plain: Callable[[Any], Any], begin: int) -> Read:
    schemaless_reader = extra("avro", "fastavro").schemaless_reader

    if parsed in ("bytes", {"type": "bytes"}):
        return lambda data: from_plain(data[begin:])

    def read(data: bytes) -> Any:
        buffer = BytesIO(data)
        buffer.seek(begin)
        value = schemaless_reader(buffer, parsed, wanted)
        if buffer.tell() != len(data):
            raise ValueError(f"{len(data) - buffer.tell()} bytes follow the value")
        return from_plain(value)

    return read


_PLAIN = (bytes, bytearray, dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID)


def converters(of: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the conversions of a type's values to plain ones and back; plain types need none."""
    if of in (Any, dict):
        return _same, _same
    if is_pydantic(of):
        return _of_model(of)
    to_plain = instances_only(shape_of(of), lambda value: msgspec.to_builtins(value, builtin_types=_PLAIN))
    return to_plain, lambda plain: msgspec.convert(plain, of, builtin_types=_PLAIN)


def _of_model(model: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    def to_plain(value: Any) -> Any:
        if not isinstance(value, model):
            raise TypeError(f"expected {model.__name__}")
        return value.model_dump(by_alias=True, warnings="error")

    return to_plain, model.model_validate


def _same(value: Any) -> Any:
    return value
