"""What a schema registry keeps: schemas with their references to others, and what it says about them. Frozen values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class SchemaKind(Enum):
    """The format of a schema, by the registry's word for it."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses: the name by which it does so, and where the registry has it.

    For example, `Reference("com.acme.Address", subject="address", version=1).version == 1`.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as the registry keeps it."""

    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()


class Registered(NamedTuple):
    """A schema of a subject, with the id that records carry and its version within the subject."""

    id: int
    schema: Schema
    version: int
