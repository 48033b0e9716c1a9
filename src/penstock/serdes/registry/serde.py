"""The common part of serdes with a schema registry: Confluent's frame, the subject, and which schema a value is written with.

A topic's bytes are a zero, the schema's id in four bytes, and the value. Within Penstock, where no topic is, a value needs no
registry: keys and exchanges have the plain form, in which equal keys have equal bytes whichever schema their producer used.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypedDict, TypeVar

from penstock.errors import ConfigError, SerializationError
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.schemas import Schema
from penstock.serdes.registry.subjects import TOPIC, check_strategy, subject_of
from penstock.serdes.serde import Serde
from penstock.serdes.wrappers import WrappingSerde

T = TypeVar("T")

Write = Callable[[Any], bytes]
Read = Callable[[bytes], Any]

MAGIC = 0
HEADER = 5
_FRAME = struct.Struct(">BI")
_read_frame = _FRAME.unpack_from


class Place(NamedTuple):
    """The topic whose keys or values a serde converts."""

    topic: str
    is_key: bool

    def __str__(self) -> str:
        return f"the {'keys' if self.is_key else 'values'} of {self.topic!r}"


class UsageKeywords(TypedDict, total=False):
    """The keywords of every such serde."""

    subject: str
    register: bool | None
    use_latest: bool | None


@dataclass(frozen=True, slots=True)
class Usage:
    """How a serde uses the registry; None is what the settings say."""

    subject: str = TOPIC
    register: bool | None = None
    use_latest: bool | None = None

    def __post_init__(self) -> None:
        check_strategy(self.subject)

    def uses_latest(self, registry: Registry) -> bool:
        """Whether values are written with the latest schema of the subject."""
        return registry.settings.use_latest if self.use_latest is None else self.use_latest

    def may_register(self, registry: Registry) -> bool:
        """Whether the schema is registered if the subject does not have it."""
        return registry.settings.register if self.register is None else self.register


class RegistrySerde(Serde[T]):
    """A serde whose schemas are in a registry. It belongs to a topic and knows a registry once the application starts."""

    place: Place | None = None
    registry: Registry | None = None

    def __init__(self, usage: Usage) -> None:
        self.usage: Usage = usage

    # ---- what a format is ---------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def name(self) -> str:
        """The full name of the record that it writes; empty if it has no schema of its own."""

    @abstractmethod
    def own_schema(self, subject: str) -> Schema | None:
        """Return the schema that it writes and reads with; None if it takes any. It may need the registry."""

    @abstractmethod
    def writer(self, schema: Schema) -> Write:
        """Return the function that writes a value, without the frame, by a schema of the registry."""

    @abstractmethod
    def reader(self, schema_id: int) -> Read:
        """Return the function that reads a value from a topic's bytes, whose frame has this id."""

    @abstractmethod
    def plain(self) -> tuple[Write, Read]:
        """Return the functions for the plain form, which begins with anything but a zero."""

    # ---- binding ------------------------------------------------------------------------------------------------------

    def for_topic(self, topic: str, is_key: bool) -> Serde[T]:
        """This serde for a topic's keys or values."""
        return self._with(place=Place(topic, is_key))

    def connected(self, registry: Registry) -> RegistrySerde[T]:
        """This serde with a registry."""
        return self._with(registry=registry)

    def _with(self, **attributes: Any) -> RegistrySerde[T]:
        other = object.__new__(type(self))
        vars(other).update(super().__getstate__(), **attributes)
        return other

    def require_registry(self) -> Registry:
        """The registry; raises if the application has none."""
        if self.registry is None:
            raise ConfigError(
                f'{self!r} needs a schema registry. Set "url" of schema_registry in penstock.toml, or schema_registry_url=.'
            )
        return self.registry

    def subject_at(self, place: Place) -> str:
        """Return the subject of what it writes there."""
        return subject_of(self.usage.subject, *place, self.name)

    # ---- conversion ---------------------------------------------------------------------------------------------------

    @cached_property
    def serialize(self) -> Write:
        """Writes a topic's frame and the value; without a topic, the plain form."""
        return self._plainly() if self.place is None else self._framed(self.place)

    @cached_property
    def deserialize(self) -> Read:
        """Reads what is in a topic; without a topic, the plain form too."""
        readers: dict[int, Read] = {}
        plain = None if self.place is not None else self._plain_reader()

        def deserialize(data: bytes) -> Any:
            try:
                magic, schema_id = _read_frame(data)
                is_framed = not magic
            except struct.error:  # too short for a frame
                is_framed, schema_id = False, 0
            if not is_framed:
                if plain is not None:
                    return plain(data)
                raise self._unframed(data)
            read = readers.get(schema_id)
            if read is None:
                read = readers[schema_id] = self.reader(schema_id)
            try:
                return read(data)
            except Exception as error:
                raise SerializationError(
                    f"{self!r} cannot read {len(data)} bytes that were written with schema {schema_id}: {_said(error)}"
                ) from error

        return deserialize

    def _framed(self, place: Place) -> Write:
        frame, write = b"", None

        def serialize(value: Any) -> bytes:
            nonlocal frame, write
            if write is None:
                frame, write = self._chosen(place)
            try:
                return frame + write(value)
            except Exception as error:
                raise self._unwritable(value, error) from error

        return serialize

    def _chosen(self, place: Place) -> tuple[bytes, Write]:
        """Return the frame, and the function that writes a value by its schema."""
        registry, subject = self.require_registry(), self.subject_at(place)
        if self.usage.uses_latest(registry):
            latest = registry.latest(subject)
            return _FRAME.pack(MAGIC, latest.id), self.writer(latest.schema)
        schema = self.own_schema(subject)
        if schema is None:
            raise schemaless(self, place)
        may_register = self.usage.may_register(registry)
        schema_id = registry.register(subject, schema) if may_register else registry.lookup(subject, schema).id
        return _FRAME.pack(MAGIC, schema_id), self.writer(schema)

    def _plainly(self) -> Write:
        write = None

        def serialize(value: Any) -> bytes:
            nonlocal write
            if write is None:
                write = self.plain()[0]
            try:
                return write(value)
            except Exception as error:
                raise self._unwritable(value, error) from error

        return serialize

    def _plain_reader(self) -> Read:
        read = None

        def deserialize(data: bytes) -> Any:
            nonlocal read
            if read is None:
                read = self.plain()[1]
            try:
                return read(data)
            except Exception as error:
                raise SerializationError(f"{self!r} cannot read {len(data)} bytes: {_said(error)}") from error

        return deserialize

    def _unwritable(self, value: Any, error: Exception) -> SerializationError:
        return SerializationError(f"{self!r} cannot write a value of type {type(value).__name__}: {_said(error)}")

    def _unframed(self, data: bytes) -> SerializationError:
        begins = f"begin with {data[:1].hex()}, not 00" if len(data) >= HEADER else f"are only {len(data)}"
        return SerializationError(
            f"{self!r} expects bytes in the schema registry's format for {self.place}, but these {begins}. They were written "
            f"without a registry: use the serde that wrote them."
        )


def schemaless(serde: RegistrySerde[Any], place: Place) -> SerializationError:
    """Return the error of a serde that has to write without a schema."""
    return SerializationError(
        f"{serde!r} cannot write {place}: it has no schema. Give it a type or a schema, or use_latest=True."
    )


def connected(serde: Serde[Any], registry: Registry) -> Serde[Any]:
    """Return a serde with the registry, in which all that is within it has it too."""
    if isinstance(serde, RegistrySerde):
        return serde.connected(registry)
    return serde.around(connected(serde.inner, registry)) if isinstance(serde, WrappingSerde) else serde


def registry_serde(serde: Serde[Any] | None) -> RegistrySerde[Any] | None:
    """Return the serde with a registry that a serde is or contains; None if there is none."""
    if isinstance(serde, WrappingSerde):
        return registry_serde(serde.inner)
    return serde if isinstance(serde, RegistrySerde) else None


def needs_registry(serde: Serde[Any] | None) -> bool:
    """Whether a serde's schemas are in a registry."""
    return registry_serde(serde) is not None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
