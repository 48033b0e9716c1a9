"""Serdes for tables within Penstock: changes in an exchange, values with their timestamp in stores and changelogs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any

from penstock.errors import SerializationError
from penstock.records import Change, ValueAndTimestamp
from penstock.serdes.wrappers import WrappingSerde

_TIMESTAMP = struct.Struct(">q")
_SIZE = struct.Struct(">I")

_HAS_NEW = 1
_HAS_OLD = 2
_IS_LATEST = 4
_FLAGS = [bytes((flags,)) for flags in range(8)]

# Cheaper than the NamedTuple's own constructor.
_new = tuple.__new__


class ValueAndTimestampSerde(WrappingSerde[ValueAndTimestamp[Any]]):
    """As in Java's timestamped stores: `ValueAndTimestampSerde(str).serialize(ValueAndTimestamp("a", 0)) == bytes(8) + b"a"`."""

    @cached_property
    def serialize(self) -> Callable[[ValueAndTimestamp[Any]], bytes]:
        """Writes the timestamp, then the value."""
        write, pack = self.inner.serialize, _TIMESTAMP.pack

        def serialize(entry: ValueAndTimestamp[Any]) -> bytes:
            try:
                value, timestamp = entry
                prefix = pack(timestamp)
            except (TypeError, ValueError, struct.error) as error:
                raise SerializationError(f"Not a value with a timestamp: {error}") from error
            return prefix + write(value)

        return serialize

    @cached_property
    def deserialize(self) -> Callable[[bytes], ValueAndTimestamp[Any]]:
        """Reads the timestamp, then the value."""
        read, unpack = self.inner.deserialize, _TIMESTAMP.unpack_from

        def deserialize(data: bytes) -> ValueAndTimestamp[Any]:
            try:
                (timestamp,) = unpack(data)
            except struct.error as error:
                raise SerializationError(f"A value with a timestamp has at least 8 bytes, got {len(data)}.") from error
            return _new(ValueAndTimestamp, (read(data[8:]), timestamp))

        return deserialize


class ChangeSerde(WrappingSerde[Change]):
    r"""A table's change in an exchange; the format is not Java's: `ChangeSerde(str).serialize(Change("a")) == b"\x05a"`.

    A byte of flags (1: has a new value, 2: has an old one, 4: is the latest); if it has both, the size of the new value in four
    bytes; the new value; the old value.
    """

    @cached_property
    def serialize(self) -> Callable[[Change], bytes]:
        """Writes those of the two values that are not None."""
        write = self.inner.serialize

        def serialize(change: Change) -> bytes:
            new, old, is_latest = change
            latest = _IS_LATEST if is_latest else 0
            if old is None:
                return _FLAGS[latest] if new is None else _FLAGS[latest | _HAS_NEW] + write(new)
            if new is None:
                return _FLAGS[latest | _HAS_OLD] + write(old)
            data = write(new)
            return b"".join((_FLAGS[latest | _HAS_NEW | _HAS_OLD], _SIZE.pack(len(data)), data, write(old)))

        return serialize

    @cached_property
    def deserialize(self) -> Callable[[bytes], Change]:
        """Reads those of the two values that were written."""
        read = self.inner.deserialize

        def deserialize(data: bytes) -> Change:
            flags = data[0] if data else len(_FLAGS)
            is_latest = flags >= _IS_LATEST
            values = flags - _IS_LATEST if is_latest else flags
            if values == _HAS_NEW | _HAS_OLD:
                end = _end_of_new(data)
                return _new(Change, (read(data[5:end]), read(data[end:]), is_latest))
            if values == _HAS_NEW:
                return _new(Change, (read(data[1:]), None, is_latest))
            if values == _HAS_OLD:
                return _new(Change, (None, read(data[1:]), is_latest))
            if values == 0 and len(data) == 1:
                return _new(Change, (None, None, is_latest))
            raise SerializationError(f"Not a change of a table: {len(data)} bytes.")

        return deserialize


def _end_of_new(data: bytes) -> int:
    try:
        (size,) = _SIZE.unpack_from(data, 1)
    except struct.error:
        size = len(data)
    if 5 + size > len(data):
        raise SerializationError(f"A table's change of {len(data)} bytes ends before its old value.")
    return int(5 + size)
