"""Buffers of joins and suppressions, in time order on a store's ordered space.

An operator creates a new buffer whenever it is bound. So a buffer reads its earliest time from the space on first use, and
keeps its count and size in the shard's registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

import msgspec

from penstock.records import Headers, RecordMetadata
from penstock.state.bounds import MAX_TIME
from penstock.state.raw import UNKNOWN, OrderedSpace

NEVER = MAX_TIME
"""Later than any event time: the earliest time of an empty buffer."""

_time = Struct(">Q")
_time_and_side = Struct(">QB")
_pack, _unpack_from = _time.pack, _time.unpack_from
_encode = msgspec.msgpack.Encoder().encode


class Unjoined(NamedTuple):
    """One record without a partner; `position` is its key in the buffer, which records of the same time, side and key share."""

    position: bytes
    timestamp: int
    is_left: bool
    key: bytes
    value: bytes


_decode_values = msgspec.msgpack.Decoder(list[bytes]).decode


class UnjoinedBuffer:
    """Records of a left or outer stream–stream join without a partner so far: by time, right before left, by key.

    Records of the same time, side and key stay in order of arrival, and are emitted together.
    """

    def __init__(self, space: OrderedSpace) -> None:
        self._space = space

    def add(self, timestamp: int, is_left: bool, key: bytes, value: bytes) -> None:
        """Add a record."""
        position = _time_and_side.pack(timestamp, is_left) + key
        earlier = self._space.get(position)
        self._space.put(position, _encode([value] if earlier is None else [*_decode_values(earlier), value]))

    def met(self, timestamp: int, is_left: bool, key: bytes) -> None:
        """Remove the records of that time, side and key: they have a partner."""
        position = _time_and_side.pack(timestamp, is_left) + key
        if self._space.get(position) is not None:
            self._space.delete(position)

    def remove(self, position: bytes) -> None:
        """Remove the records at a position."""
        self._space.delete(position)

    def __iter__(self) -> Iterator[Unjoined]:
        for position, values in self._space.scan():
            timestamp, is_left = _time_and_side.unpack_from(position)
            for value in _decode_values(values):
                yield Unjoined(position, timestamp, bool(is_left), position[9:], value)


class Waiting(msgspec.Struct, array_like=True, frozen=True):
    """A record of a stream that waits for a table."""

    value: bytes
    headers: Headers
    origin: RecordMetadata | None


_decode_waiting = msgspec.msgpack.Decoder(list[Waiting]).decode


class RecordBuffer:
    """Records of a stream that wait for the table they join to catch up: by time, key and arrival."""

    def __init__(self, space: OrderedSpace) -> None:
        self._space = space
        self._earliest: int | None = None

    @property
    def earliest(self) -> int:
        """The time of the first record, `NEVER` if the buffer is empty."""
        if self._earliest is None:
            self._earliest = _first_time(self._space.scan())
        return self._earliest

    def add(self, timestamp: int, key: bytes, record: Waiting) -> None:
        """Add a record."""
        if timestamp < self.earliest:
            self._earliest = timestamp
        position = _pack(timestamp) + key
        earlier = self._space.get(position)
        self._space.put(position, _encode([record] if earlier is None else [*_decode_waiting(earlier), record]))

    def take(self, until: int) -> Iterator[tuple[int, bytes, Waiting]]:
        """Yield the records up to a time, in order, with time and key; each is removed when the next one is requested.

        A position is written once, when all its records are taken or iteration stops: an epoch may continue after one of them
        has failed, and those before it must not be emitted again.
        """
        self._earliest = None
        space = self._space
        for position, data in space.scan():
            (timestamp,), key = _unpack_from(position), position[8:]
            if timestamp > until:
                self._earliest = timestamp
                return
            records, taken = _decode_waiting(data), 0
            try:
                for record in records:
                    yield timestamp, key, record
                    taken += 1
            finally:
                if taken:
                    space.put(position, _encode(records[taken:]) if taken < len(records) else None)
        self._earliest = NEVER


class Held(msgspec.Struct, array_like=True, frozen=True):
    """A table's change that is held back: `time` is its position in the buffer, `prior` the value that downstream last saw."""

    time: int
    timestamp: int
    new: bytes | None
    old: bytes | None
    prior: bytes | None
    headers: Headers
    origin: RecordMetadata | None

    def size(self, key: bytes) -> int:
        """Return its size in bytes by Kafka Streams' estimate, so that buffers are full at the same record."""
        size = 8 + len(key) + 20 + _length(self.prior) + _length(self.new)  # 20: the context's timestamp, offset, partition
        if self.old != self.prior:
            size += _length(self.old)
        if self.origin is not None:
            size += len(self.origin.topic)
        return size + sum(len(name) + _length(value) for name, value in self.headers)


_decode_held = msgspec.msgpack.Decoder(Held).decode

_BY_KEY, _BY_TIME, _AFTER_BY_TIME = b"k", b"t", b"u"


class ChangeBuffer:
    """The last change of each key that is held back, by the time of the key's first change and then by key.

    A later change replaces an earlier one and keeps its position. The changes are kept by key; entries by time only point to
    them.
    """

    def __init__(self, space: OrderedSpace) -> None:
        self._space = space
        self._earliest: int | None = None
        self._count, self._size = space.measures()

    @property
    def earliest(self) -> int:
        """The time of the first change, `NEVER` if the buffer is empty."""
        if self._earliest is None:
            first = next(self._space.scan(_BY_TIME, _AFTER_BY_TIME), None)
            self._earliest = NEVER if first is None else _unpack_from(first[0], 1)[0]
        return self._earliest

    @property
    def measured(self) -> tuple[int, int]:
        """The number of changes and their bytes; reads all of them the first time in a shard."""
        if self._count.value == UNKNOWN:
            sizes = [_decode_held(data).size(position[1:]) for position, data in self._space.prefix_scan(_BY_KEY)]
            self._count.value, self._size.value = len(sizes), sum(sizes)
        return self._count.value, self._size.value

    def get(self, key: bytes) -> Held | None:
        """Return the pending change of a key, if any."""
        data = self._space.get(_BY_KEY + key)
        return None if data is None else _decode_held(data)

    def put(
        self,
        time: int,
        key: bytes,
        new: bytes | None,
        old: bytes | None,
        timestamp: int,
        headers: Headers,
        origin: RecordMetadata | None,
    ) -> None:
        """Add a key's change, or replace the pending one."""
        earlier = self.get(key)
        if earlier is None:
            change = Held(time, timestamp, new, old, old, headers, origin)
            if time < self.earliest:
                self._earliest = time
            self._space.put(_BY_TIME + _pack(time) + key, b"")
        else:
            change = Held(earlier.time, timestamp, new, old, earlier.prior, headers, origin)
        self._space.put(_BY_KEY + key, _encode(change))
        if self._count.value != UNKNOWN:
            self._count.value += earlier is None
            self._size.value += change.size(key) - (0 if earlier is None else earlier.size(key))

    def up_to(self, time: int) -> Iterator[tuple[bytes, Held]]:
        """Yield the changes up to a time, in order, with their keys; `remove` may be called during iteration."""
        for position, _ in self._space.scan(_BY_TIME, _BY_TIME + _pack(time + 1)):
            held = self.get(position[9:])
            assert held is not None, "an entry by time points to one by key"
            yield position[9:], held

    def remove(self, key: bytes, held: Held) -> None:
        """Remove a key's change."""
        self._earliest = None
        if self._count.value != UNKNOWN:
            self._count.value -= 1
            self._size.value -= held.size(key)
        self._space.delete(_BY_TIME + _pack(held.time) + key)
        self._space.delete(_BY_KEY + key)


def _first_time(entries: Iterator[tuple[bytes, bytes]]) -> int:
    first = next(entries, None)
    return NEVER if first is None else int(_unpack_from(first[0])[0])


def _length(data: bytes | None) -> int:
    return 0 if data is None else len(data)
