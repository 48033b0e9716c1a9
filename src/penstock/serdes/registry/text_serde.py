"""The common part of `Avro` and `JsonSchema`: a schema that is JSON text, given by the user or by a type."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from penstock.errors import SerializationError, TopologyError
from penstock.serdes.registry.schemas import Reference, Schema, SchemaKind
from penstock.serdes.registry.serde import RegistrySerde, Usage
from penstock.serdes.serde import type_name

T = TypeVar("T")


class TextSerde(RegistrySerde[T]):
    """A serde with the schema `text`, which may be empty, and with the `references` of that schema to others."""

    kind: ClassVar[SchemaKind]

    def __init__(self, of: Any, text: str, references: Sequence[Reference], usage: Usage) -> None:
        super().__init__(usage)
        self.of: Any = of
        self.text: str = text
        self.references: tuple[Reference, ...] = tuple(references)

    @property
    def schema(self) -> Schema | None:
        """The schema; None if it has none of its own."""
        return Schema(self.kind, self.text, self.references) if self.text else None

    def own_schema(self, subject: str) -> Schema | None:
        """See `RegistrySerde`."""
        return self.schema

    def written_with(self, schema_id: int) -> Schema:
        """Return the schema of an id; raise if it is of another format."""
        found = self.require_registry().schema(schema_id)
        if found.kind is not self.kind:
            raise SerializationError(f"{self!r} cannot read values of schema {schema_id}, which is {found.kind.value}.")
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name if self.of is Any else type_name(self.of)})"


def given(serde: str, schema: Any) -> Any:
    """Return a schema that the user has given: a dict, JSON as text, or the `Path` of a file. `serde` is for the error."""
    if isinstance(schema, Path):
        schema = schema.read_text(encoding="utf-8")
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise TopologyError(f"{serde}(): schema= is not JSON: {error}") from None
    return schema


def compact(schema: Any) -> str:
    """Return a schema as compact JSON."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
