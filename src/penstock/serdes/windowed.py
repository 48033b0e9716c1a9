"""Windowed keys as Kafka Streams writes them to topics: the key's bytes, then the window's times."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from penstock.errors import SerializationError
from penstock.records import Windowed
from penstock.serdes.serde import Serde
from penstock.serdes.wrappers import WrappingSerde

K = TypeVar("K")

_LONG_MAX = 2**63 - 1
_START = struct.Struct(">q")
_END_AND_START = struct.Struct(">qq")

# Cheaper than the NamedTuple's own constructor.
_new = tuple.__new__


class TimeWindowed(WrappingSerde[Windowed[K]]):
    """Keys of time and sliding windows: `TimeWindowed(str, 10).serialize(Windowed("a", 0, 10)) == b"a" + bytes(8)`.

    The end isn't written: the reader must know the window's size. As in Java, empty bytes are read as None, and an end beyond the
    largest long is that long. `changelog=True` is for the keys of a window store's changelog topic, which have a sequence
    number of four bytes after the start.
    """

    changelog: bool = False

    def __init__(self, inner: Serde[K] | type[K], window_size_ms: int, changelog: bool = False) -> None:
        super().__init__(inner)
        if window_size_ms <= 0:
            raise ValueError(f"Invalid window size {window_size_ms} ms: it must be at least 1 ms.")
        self.window_size_ms = window_size_ms
        if changelog:
            self.changelog = True

    @property
    def times_size(self) -> int:
        """How many bytes follow those of the inner key."""
        return _START.size + (4 if self.changelog else 0)

    @property
    def identity(self) -> bool:
        """That of the inner serde, because all windows have one size."""
        return self.inner.identity

    @property
    def is_canonical(self) -> bool:
        """That of the inner serde, except for changelogs, whose sequence number is not read."""
        return self.inner.is_canonical and not self.changelog

    @cached_property
    def serialize(self) -> Callable[[Windowed[K]], bytes]:
        """Writes the key, then the window's start."""
        write, pack, sequence = self.inner.serialize, _START.pack, bytes(4) if self.changelog else b""

        def serialize(windowed: Windowed[K]) -> bytes:
            try:
                key, start, _ = windowed
                suffix = pack(start)
            except (TypeError, ValueError, struct.error) as error:
                raise _unwritable("TimeWindowed", windowed, error) from error
            if start < 0:
                raise SerializationError(f"TimeWindowed: invalid window start {start}: it must be 0 or later.")
            return write(key) + suffix + sequence

        return serialize

    @cached_property
    def deserialize(self) -> Callable[[bytes], Any]:
        """Reads a `Windowed`, or None from empty bytes."""
        read, unpack, size = self.inner.deserialize, _START.unpack_from, self.window_size_ms
        behind = -12 if self.changelog else -8

        def deserialize(data: bytes) -> Any:
            try:
                (start,) = unpack(data, behind)
            except struct.error as error:
                return _unreadable("TimeWindowed", -behind, data, error)
            if not 0 <= start < _LONG_MAX:
                raise SerializationError(f"TimeWindowed: invalid window start {start}: it must be from 0 to {_LONG_MAX - 1}.")
            end = start + size
            last = end if end <= _LONG_MAX else _LONG_MAX  # noqa: FURB136 - cheaper than a call of min()
            return _new(Windowed, (read(data[:behind]), start, last))

        return deserialize


class SessionWindowed(WrappingSerde[Windowed[K]]):
    """Keys of session windows: `SessionWindowed(str).serialize(Windowed("a", 0, 0)) == b"a" + bytes(16)`.

    The end is written before the start. As in Java, empty bytes are read as None.
    """

    def __init__(self, inner: Serde[K] | type[K]) -> None:
        super().__init__(inner)

    @property
    def times_size(self) -> int:
        """How many bytes follow those of the inner key."""
        return _END_AND_START.size

    @property
    def identity(self) -> bool:
        """That of the inner serde, because start and end are written."""
        return self.inner.identity

    @property
    def is_canonical(self) -> bool:
        """That of the inner serde."""
        return self.inner.is_canonical

    @cached_property
    def serialize(self) -> Callable[[Windowed[K]], bytes]:
        """Writes the key, then the session's end and start."""
        write, pack = self.inner.serialize, _END_AND_START.pack

        def serialize(windowed: Windowed[K]) -> bytes:
            try:
                key, start, end = windowed
                suffix = pack(end, start)
            except (TypeError, ValueError, struct.error) as error:
                raise _unwritable("SessionWindowed", windowed, error) from error
            if not 0 <= start <= end:
                raise SerializationError(f"SessionWindowed: invalid session from {start} to {end}.")
            return write(key) + suffix

        return serialize

    @cached_property
    def deserialize(self) -> Callable[[bytes], Any]:
        """Reads a `Windowed`, or None from empty bytes."""
        read, unpack = self.inner.deserialize, _END_AND_START.unpack_from

        def deserialize(data: bytes) -> Any:
            try:
                end, start = unpack(data, -16)
            except struct.error as error:
                return _unreadable("SessionWindowed", 16, data, error)
            if not 0 <= start <= end:
                raise SerializationError(f"SessionWindowed: invalid session from {start} to {end}.")
            return _new(Windowed, (read(data[:-16]), start, end))

        return deserialize


def _unwritable(name: str, value: Any, error: Exception) -> SerializationError:
    return SerializationError(f"{name} expects Windowed(key, start, end), got {type(value).__name__}: {error}")


def _unreadable(name: str, size: int, data: bytes, error: Exception) -> None:
    if data:
        raise SerializationError(f"{name} expects at least {size} bytes, got {len(data)}.") from error
