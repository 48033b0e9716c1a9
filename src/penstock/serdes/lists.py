"""Lists in the format of Kafka's Java `ListSerializer`, nulls included."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

from penstock.errors import SerializationError
from penstock.serdes.primitives import Float32, Float64, Int16, Int32, Int64, UUIDs
from penstock.serdes.serde import Serde
from penstock.serdes.wrappers import WrappingSerde

T = TypeVar("T")

# The types with a fixed size in Java, which do not include booleans. Sizes are not written: the reader must know them.
_FIXED_SIZES: dict[type[Serde[Any]], int] = {Int16: 2, Int32: 4, Float32: 4, Int64: 8, Float64: 8, UUIDs: 36}

_CONSTANT_SIZE = 0  # flag, nulls, index of each null, length, entries that are not null
_VARIABLE_SIZE = 1  # flag, length, entries, each after its size or -1 for null
_NULL_SIZE = -1

_INT = struct.Struct(">i")
_FLAG_AND_INT = struct.Struct(">bi")


class List(WrappingSerde["list[T | None]"], Generic[T]):
    r"""A list, in the format of Java's `ListSerde`: `List(bool).serialize([]) == b"\x01" + bytes(4)`.

    Entries may be None. As a type, `list[int]` means JSON instead. Where Java reads a truncated last entry as if zeros followed,
    this raises; where Java fails to read an empty last entry that it wrote, this reads it.
    """

    inner: Serde[T]

    def __init__(self, inner: Serde[T] | type[T]) -> None:
        super().__init__(inner)

    @cached_property
    def serialize(self) -> Callable[[list[T | None]], bytes]:
        """Writes entries without sizes if they have a fixed size in Java, otherwise each after its size."""
        write = self.inner.serialize
        write_all = _write_constant if type(self.inner) in _FIXED_SIZES else _write_variable

        def serialize(values: list[T | None]) -> bytes:
            if isinstance(values, (list, tuple)):
                return write_all(values, write)
            raise SerializationError(f"List expects a list or a tuple, got {type(values).__name__}.")

        return serialize

    @cached_property
    def deserialize(self) -> Callable[[bytes], list[T | None]]:
        """Reads either layout, depending on the first byte."""
        read = self.inner.deserialize
        size = _FIXED_SIZES.get(type(self.inner))

        def deserialize(data: bytes) -> list[T | None]:
            flag = data[0] if data else None
            try:
                if flag == _VARIABLE_SIZE:
                    return _read_variable(data, read)
                if flag == _CONSTANT_SIZE and size is not None:
                    return _read_constant(data, size, read)
            except struct.error as error:
                raise SerializationError("List: the data ends before the last entry.") from error
            raise SerializationError(f"List of {self.inner}: unknown format {flag}.")

        return deserialize


def _write_constant(values: Any, write: Callable[[Any], bytes]) -> bytes:
    nulls = [index for index, value in enumerate(values) if value is None]
    head = struct.pack(f">bi{len(nulls)}ii", _CONSTANT_SIZE, len(nulls), *nulls, len(values))
    return b"".join([head, *[write(value) for value in values if value is not None]])


def _write_variable(values: Any, write: Callable[[Any], bytes]) -> bytes:
    parts = [_FLAG_AND_INT.pack(_VARIABLE_SIZE, len(values))]
    for value in values:
        if value is None:
            parts.append(_INT.pack(_NULL_SIZE))
        else:
            data = write(value)
            parts += (_INT.pack(len(data)), data)
    return b"".join(parts)


def _read_constant(data: bytes, size: int, read: Callable[[bytes], Any]) -> list[Any]:
    null_count = _read_count(data, 1)
    nulls = set(struct.unpack_from(f">{null_count}i", data, 5))
    at = 5 + 4 * null_count
    length = _read_count(data, at)
    at += 4
    values: list[Any] = []
    for index in range(length):
        if index in nulls:
            values.append(None)
        else:
            values.append(read(_slice(data, at, size)))
            at += size
    return values


def _read_variable(data: bytes, read: Callable[[bytes], Any]) -> list[Any]:
    length = _read_count(data, 1)
    at = 5
    values: list[Any] = []
    for _ in range(length):
        (size,) = _INT.unpack_from(data, at)
        at += 4
        if size == _NULL_SIZE:
            values.append(None)
        else:
            values.append(read(_slice(data, at, size)))
            at += size
    return values


def _read_count(data: bytes, at: int) -> int:
    (count,) = _INT.unpack_from(data, at)
    if 0 <= count <= len(data):
        return int(count)
    raise SerializationError(f"List of {len(data)} bytes cannot hold {count} entries.")


def _slice(data: bytes, at: int, size: int) -> bytes:
    end = at + size
    if size < 0 or end > len(data):
        raise SerializationError(f"List has {len(data) - at} bytes left for an entry of {size} bytes.")
    return data[at:end]
