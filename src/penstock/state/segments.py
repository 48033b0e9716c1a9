"""The layout of window and session stores: by time segment, so that old entries are removed in one range.

An occurrence is a key's bytes and a suffix of fixed size that starts with eight bytes of time. The changelog's key is key +
suffix, as in Kafka Streams. Scans have the order of Kafka Streams' persistent stores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING

from penstock.state.bounds import MAX_TIME, after

if TYPE_CHECKING:
    from penstock.state.overlay import Register, Space
    from penstock.state.specs import StoreSpec
    from penstock.state.store import RegisterSource, Shard

_long = Struct(">q")
_pack = _long.pack
_unpack_from = _long.unpack_from
_SHARE = 1000

Occurrence = tuple[bytes, bytes, bytes]
"""A key's bytes, its suffix, its value."""


def retention_limit(registers: RegisterSource, store: str) -> Register:
    """Return the register with the watermark from which a store's retention counts back, if there are watermarks.

    Partitions may be far apart: a store must keep what is not late for the slowest, however far ahead the others are.
    """
    return registers.register(f"{store}/watermark", MAX_TIME)


class Retention:
    """A store's time and how far back it keeps entries."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        self._retention = spec.retention_ms or 0
        self._interval = spec.segment_ms
        self._observed = shard.registers.register(f"{spec.name}/observed_stream_time", -1)
        self._limit = retention_limit(shard.registers, spec.name)
        self._floor = shard.registers.register(f"{spec.name}/first_segment", 0)
        self._purged = shard.registers.register(f"{spec.name}/purged_segments", 0)

    @property
    def observed(self) -> int:
        """The highest time the store has seen, -1 before the first."""
        return self._observed.value

    @property
    def horizon(self) -> int:
        """The current time less the retention."""
        return self.time - self._retention

    @property
    def time(self) -> int:
        """The time from which the retention counts back: the watermark, or without one the highest time the store has seen."""
        limit = self._limit.value
        return self._observed.value if limit == MAX_TIME else limit

    @property
    def floor(self) -> int:
        """The first segment that is kept."""
        limit = self._limit.value
        return self._floor.value if limit == MAX_TIME else self.segment(limit - self._retention)

    @property
    def interval(self) -> int:
        """The duration of a segment."""
        return self._interval

    def observe(self, time: int) -> None:
        """Advance the store's time to `time`; segments stay until the next `advance`, as in Kafka Streams."""
        if time > self._observed.value:  # noqa: PLR1730 # at every put: no call
            self._observed.value = time

    def advance(self, time: int) -> None:
        """Advance the store's time to `time`, and drop the segments that are then past the retention."""
        self.observe(time)
        self._floor.value = self.segment(self.time - self._retention)

    def segment(self, time: int) -> int:
        """Return the segment that contains a time."""
        return time // self._interval if time > 0 else 0

    def purge(self, space: Space, ranges: list[tuple[bytes, bytes]], logged: bool = False) -> None:
        """Remove some entries in the ranges, at least as fast as an epoch adds new ones; the ranges are below the floor."""
        floor = self.floor
        if floor <= self._purged.value:
            return
        share = _SHARE + 2 * len(space.dirty)
        for lower, upper in ranges:
            for key, value in space.scan(lower, upper):
                if share == 0:
                    return
                share -= 1
                if logged:
                    space.put(key, None)
                else:
                    space.expire(key, value)
        self._purged.value = floor


class Layout(ABC):
    """The layout of occurrences in a space."""

    def __init__(self, shard: Shard, spec: StoreSpec, retention: Retention, suffix_size: int) -> None:
        # Even a deletion of a missing entry advances the store's time: unlogged, a rebuilt store would be behind.
        self._space = shard.space(spec.name, self.log if spec.logged else None, log_all=True)
        self._retention = retention
        self._suffix_size = suffix_size

    @abstractmethod
    def put(self, segment: int, key: bytes, suffix: bytes, value: bytes | None) -> None:
        """Set an occurrence whose time is in that segment; None deletes it."""

    @abstractmethod
    def get(self, segment: int, key: bytes, suffix: bytes) -> bytes | None:
        """Return the value of an occurrence whose time is in that segment."""

    @abstractmethod
    def of_key(self, key: bytes, lower: bytes, upper: bytes, times: range, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield suffixes and values of one key, suffixes from `lower` to `upper` inclusive, within the given segments."""

    @abstractmethod
    def of_keys(self, from_key: bytes | None, to_key: bytes | None, times: range, reverse: bool) -> Iterator[Occurrence]:
        """Yield all occurrences of keys between two keys (inclusive; None: open) within the given segments."""

    @abstractmethod
    def of_times(self, from_time: int, to_time: int, reverse: bool) -> Iterator[Occurrence]:
        """Yield all occurrences from one time to another, both inclusive."""

    @abstractmethod
    def log(self, keys: list[bytes], values: list[bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
        """Return the changelog rows of writes to the space."""

    @abstractmethod
    def purge(self) -> None:
        """Remove some entries below the floor."""

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """Write changelog rows, except those that the store would no longer keep."""
        size = self._suffix_size
        floor = self._retention.floor
        for row, value in zip(keys, values, strict=True):
            segment = self._retention.segment(_unpack_from(row, len(row) - size)[0])
            if segment >= floor:
                self.put(segment, row[:-size], row[-size:], value)


class KeyFirst(Layout):
    """Segment, key, suffix: the layout of Kafka Streams' default stores."""

    def put(self, segment: int, key: bytes, suffix: bytes, value: bytes | None) -> None:
        """See `Layout`."""
        self._space.put(_pack(segment) + key + suffix, value)

    def get(self, segment: int, key: bytes, suffix: bytes) -> bytes | None:
        """See `Layout`."""
        return self._space.get(_pack(segment) + key + suffix)

    def of_key(self, key: bytes, lower: bytes, upper: bytes, times: range, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """See `Layout`."""
        return _of_key(self._space, b"", key, lower, upper, times, reverse)

    def of_keys(self, from_key: bytes | None, to_key: bytes | None, times: range, reverse: bool) -> Iterator[Occurrence]:
        """See `Layout`."""
        return _of_keys(self._space, b"", self._suffix_size, from_key, to_key, times, reverse)

    def of_times(self, from_time: int, to_time: int, reverse: bool) -> Iterator[Occurrence]:
        """See `Layout`."""
        times = range(self._retention.segment(from_time), self._retention.segment(to_time) + 1)
        for occurrence in self.of_keys(None, None, times, reverse):
            if from_time <= _unpack_from(occurrence[1])[0] <= to_time:
                yield occurrence

    def log(self, keys: list[bytes], values: list[bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
        """See `Layout`."""
        return [key[8:] for key in keys], values

    def purge(self) -> None:
        """See `Layout`."""
        self._retention.purge(self._space, [(b"", _pack(self._retention.floor))])


class TimeFirst(Layout):
    """Time, key, rest: the layout of Kafka Streams' time-ordered stores, with an index of segment, key, suffix."""

    _MAIN = b"\x00"
    _INDEX = b"\x01"
    MAIN = (_MAIN, _INDEX)
    """The bounds of the rows that have values."""

    def __init__(self, shard: Shard, spec: StoreSpec, retention: Retention, suffix_size: int, before_key: int) -> None:
        super().__init__(shard, spec, retention, suffix_size)
        self._before_key = before_key

    def put(self, segment: int, key: bytes, suffix: bytes, value: bytes | None) -> None:
        """See `Layout`."""
        self._space.put(self._main(key, suffix), value)
        self._space.put(self._INDEX + _pack(segment) + key + suffix, None if value is None else b"")

    def get(self, segment: int, key: bytes, suffix: bytes) -> bytes | None:
        """See `Layout`."""
        return self._space.get(self._main(key, suffix))

    def of_key(self, key: bytes, lower: bytes, upper: bytes, times: range, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """See `Layout`."""
        for suffix, _ in _of_key(self._space, self._INDEX, key, lower, upper, times, reverse):
            value = self._space.get(self._main(key, suffix))
            if value is not None:
                yield suffix, value

    def of_keys(self, from_key: bytes | None, to_key: bytes | None, times: range, reverse: bool) -> Iterator[Occurrence]:
        """See `Layout`."""
        for key, suffix, _ in _of_keys(self._space, self._INDEX, self._suffix_size, from_key, to_key, times, reverse):
            value = self._space.get(self._main(key, suffix))
            if value is not None:
                yield key, suffix, value

    def of_times(self, from_time: int, to_time: int, reverse: bool) -> Iterator[Occurrence]:
        """See `Layout`."""
        lower = self._MAIN + _pack(max(from_time, 0))
        upper = self._INDEX if to_time >= MAX_TIME else self._MAIN + _pack(max(to_time + 1, 0))
        for row, value in self._space.scan(lower, upper, reverse):
            yield *self._split(row), value

    def log(self, keys: list[bytes], values: list[bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
        """See `Layout`."""
        rows: list[bytes] = []
        kept: list[bytes | None] = []
        for row, value in zip(keys, values, strict=True):
            if row[:1] == self._MAIN:
                rows.append(b"".join(self._split(row)))
                kept.append(value)
        return rows, kept

    def purge(self) -> None:
        """See `Layout`."""
        floor = self._retention.floor
        self._retention.purge(
            self._space,
            [
                (self._MAIN, self._MAIN + _pack(floor * self._retention.interval)),
                (self._INDEX, self._INDEX + _pack(floor)),
            ],
        )

    def _main(self, key: bytes, suffix: bytes) -> bytes:
        return self._MAIN + suffix[: self._before_key] + key + suffix[self._before_key :]

    def _split(self, row: bytes) -> tuple[bytes, bytes]:
        start = 1 + self._before_key
        end = len(row) - (self._suffix_size - self._before_key)
        return row[start:end], row[1:start] + row[end:]


def _of_key(
    space: Space, prefix: bytes, key: bytes, lower: bytes, upper: bytes, times: range, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yield suffixes and values of one key. Rows of longer keys within the bounds are recognized by their length."""
    for segment in reversed(times) if reverse else times:
        start = prefix + _pack(segment) + key
        size, skip = len(start) + len(lower), len(start)
        for row, value in space.scan(start + lower, after(start + upper), reverse):
            if len(row) == size:
                yield row[skip:], value


def _of_keys(
    space: Space, prefix: bytes, suffix_size: int, from_key: bytes | None, to_key: bytes | None, times: range, reverse: bool
) -> Iterator[Occurrence]:
    skip = len(prefix) + 8
    for segment in reversed(times) if reverse else times:
        lower = prefix + _pack(segment) + (from_key or b"")
        upper = prefix + (_pack(segment + 1) if to_key is None else _pack(segment) + _above(to_key, suffix_size))
        for row, value in space.scan(lower, upper, reverse):
            key = row[skip:-suffix_size]
            if (from_key is None or key >= from_key) and (to_key is None or key <= to_key):
                yield key, row[-suffix_size:], value


def _above(key: bytes, suffix_size: int) -> bytes:
    """Return a bound above key + suffix for this key and every smaller one.

    A smaller key's occurrence is larger than all of this key's only if that key is a prefix of this one and its suffix is
    larger than the rest of this key; the shortest such prefix decides.
    """
    largest = b"\x7f" + b"\xff" * suffix_size
    for size in range(len(key)):
        if largest > key[size : size + len(largest)]:
            return key[:size] + largest
    return key + largest
