"""Versioned key-value stores: a key's value as of a time, for as long as history is kept.

The newest version of a key is stored separately; older ones are in segments by the time at which they ended. Kafka Streams
does the same, and its results for out-of-order updates depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.records import VersionedRecord
from penstock.state.bounds import MAX_TIME
from penstock.state.segments import Retention
from penstock.state.store import HistoryStore, plain_log
from penstock.state.timestamped import timestamp_of
from penstock.state.versions import Row, decode_row, min_timestamp_of, next_timestamp_of

if TYPE_CHECKING:
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard

K = TypeVar("K")
V = TypeVar("V")

NEWEST = -1
"""`put` returns this if the version is the key's newest."""

NOT_PUT = -(2**63)
"""`put` returns this if the version is too late to be kept."""

_pack = Struct(">q").pack
_LATEST = b"\x00"
_SEGMENT = b"\x01"


class VersionedKeyValueStore(HistoryStore[K, V]):
    """A versioned key-value store. Its retention is also the grace period within which it accepts older versions."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        super().__init__(spec)
        self._retention = Retention(shard, spec)
        self._space = shard.space(spec.name, plain_log if spec.logged else None)

    @property
    def observed_stream_time(self) -> int:
        """The latest time the store has seen, -1 before the first."""
        return self._retention.observed

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Set a key's value from `timestamp` on; None deletes it.

        Return the end of its validity: a time, `NEWEST` if there is no newer version, `NOT_PUT` if it is too late.
        """
        raw_key = self._key_bytes(key)
        if timestamp < self._retention.horizon:
            return NOT_PUT
        self._retention.advance(timestamp)
        valid_to = self._put_raw(raw_key, None if value is None else self._serialize(value), timestamp)
        return NEWEST if valid_to is None else valid_to

    def delete(self, key: K, timestamp: int) -> VersionedRecord[V] | None:
        """Delete a key's value from `timestamp` on; return the version that was valid then."""
        if timestamp < self._retention.horizon:
            return None
        old = self.get(key, timestamp)
        self.put(key, None, timestamp)
        return old

    @overload
    def get(self, key: K) -> VersionedRecord[V] | None: ...

    @overload
    def get(self, key: K, as_of: int) -> VersionedRecord[V] | None: ...

    def get(self, key: K, as_of: int = MAX_TIME) -> VersionedRecord[V] | None:
        """Return a key's newest version, or the one valid at a time; None if there is none, or it is past the retention."""
        raw_key = self._key_bytes(key)
        latest = self._space.get(_LATEST + raw_key)
        if latest is not None and timestamp_of(latest) <= as_of:
            return VersionedRecord(self._deserialize(latest[8:]), timestamp_of(latest))
        if as_of == MAX_TIME or as_of < self._retention.horizon:
            return None
        for _, raw in self._rows(raw_key, as_of):
            if next_timestamp_of(raw) <= as_of:
                return None
            if min_timestamp_of(raw) <= as_of:
                found = decode_row(raw).find(as_of)
                if found.value is None:
                    return None
                return VersionedRecord(self._deserialize(found.value), found.valid_from, found.valid_to)
        return None

    def history(self, key: K, from_time: int, to_time: int, reverse: bool = False) -> Iterator[VersionedRecord[V]]:
        """Yield the versions valid at some time between two times (inclusive), oldest first or newest first."""
        raw_key, found = self._key_bytes(key), []
        latest = self._space.get(_LATEST + raw_key)
        if latest is not None and timestamp_of(latest) <= to_time:
            found.append(VersionedRecord(self._deserialize(latest[8:]), timestamp_of(latest)))
        if to_time >= self._retention.horizon:
            for _, raw in self._rows(raw_key, 0):
                row = decode_row(raw)
                valid_to = row.next_timestamp
                for valid_from, value in row.versions:
                    if value is not None and valid_from <= to_time and valid_to > from_time:
                        found.append(VersionedRecord(self._deserialize(value), valid_from, valid_to))
                    valid_to = valid_from
        return iter(found) if reverse else reversed(found)

    def all(self) -> Iterator[tuple[K, VersionedRecord[V]]]:
        """Yield the newest version of every key, in byte order of the keys."""
        return ((self._deserialize_key(key), found) for key, found in self.newest(None, None))

    def newest(self, lower: bytes | None, upper: bytes | None) -> Iterator[tuple[bytes, VersionedRecord[Any]]]:
        """Yield the newest versions of the keys whose bytes are within bounds, the upper one exclusive."""
        first, end = _LATEST + (lower or b""), _SEGMENT if upper is None else _LATEST + upper
        for row, raw in self._space.scan(first, end):
            yield row[1:], VersionedRecord(self._deserialize(raw[8:]), timestamp_of(raw))

    def items(self) -> Iterator[tuple[K, VersionedRecord[V]]]:
        """Yield keys and their newest versions, like a mapping; same as `all`."""
        return self.all()

    def before_commit(self) -> None:
        """See `StateStore`."""
        upper = _SEGMENT + _pack(self._retention.floor)
        self._retention.purge(self._space, [(_SEGMENT, upper)], logged=True)

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """See `StateStore`."""
        for row, value in zip(keys, values, strict=True):
            self._space.put(row, value)
            if value is not None:
                self._retention.advance(next_timestamp_of(value) if row[:1] == _SEGMENT else timestamp_of(value))

    def _rows(self, key: bytes, since: int) -> Iterator[tuple[int, bytes]]:
        """Yield a key's segments and rows, newest segment first, down to the one that contains `since`."""
        first = max(self._retention.segment(since), self._retention.floor)
        for segment in range(self._retention.segment(self._retention.observed), first - 1, -1):
            raw = self._space.get(_SEGMENT + _pack(segment) + key)
            if raw is not None:
                yield segment, raw

    def _row(self, key: bytes, segment: int) -> Row | None:
        raw = self._space.get(_SEGMENT + _pack(segment) + key)
        return None if raw is None else decode_row(raw)

    def _put_row(self, key: bytes, segment: int, row: Row) -> None:
        self._space.put(_SEGMENT + _pack(segment) + key, row.encode())

    def _put_raw(self, key: bytes, value: bytes | None, timestamp: int) -> int | None:
        """Insert a version; return the end of its validity, None if it is the newest."""
        latest = self._space.get(_LATEST + key)
        valid_to = None
        if latest is not None:
            latest_timestamp = timestamp_of(latest)
            if timestamp >= latest_timestamp:
                if timestamp > latest_timestamp:
                    self._append(key, latest_timestamp, timestamp, latest[8:])
                self._space.put(_LATEST + key, None if value is None else _pack(timestamp) + value)
                return None
            valid_to = latest_timestamp
        for segment, raw in self._rows(key, timestamp):
            if next_timestamp_of(raw) <= timestamp:
                break
            least = min_timestamp_of(raw)
            if least <= timestamp:
                return self._put_within(key, value, timestamp, segment, decode_row(raw))
            valid_to = least
        if valid_to is None:
            self._put_newest(key, value, timestamp)
        else:
            self._put_before(key, value, timestamp, valid_to)
        return valid_to

    def _append(self, key: bytes, valid_from: int, valid_to: int, value: bytes | None) -> None:
        """Add a version as the newest one of the segment in which it ends."""
        segment = self._retention.segment(valid_to)
        row = self._row(key, segment)
        if row is None:
            row = Row(valid_to, [(valid_from, value)])
        else:
            row.insert_newest(valid_from, valid_to, value)
        self._put_row(key, segment, row)

    def _put_within(self, key: bytes, value: bytes | None, timestamp: int, segment: int, row: Row) -> int:
        """Insert a version into a row that covers its time; the version before it may now end in an older segment."""
        found = row.find(timestamp)
        if found.valid_from == timestamp:
            row.replace(found.place, timestamp, value)
        elif self._retention.segment(timestamp) != segment:
            self._append(key, found.valid_from, timestamp, found.value)
            row.replace(found.place, timestamp, value)
        else:
            row.insert(found.place, timestamp, value)
        self._put_row(key, segment, row)
        return found.valid_to

    def _put_newest(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Insert the newest version; a deletion is kept in a segment, so that it expires."""
        if value is not None:
            self._space.put(_LATEST + key, _pack(timestamp) + value)
            return
        segment = self._retention.segment(timestamp)
        row = self._row(key, segment)
        if row is None:
            self._put_row(key, segment, Row(timestamp, [(timestamp, None)]))
        elif row.next_timestamp != timestamp:
            row.insert_newest(row.next_timestamp, timestamp, None)
            self._put_row(key, segment, row)

    def _put_before(self, key: bytes, value: bytes | None, timestamp: int, valid_to: int) -> None:
        """Insert a version that is older or newer than all others in the segment in which it ends."""
        segment = self._retention.segment(valid_to)
        row = self._row(key, segment)
        if row is None:
            row = Row(valid_to, [(timestamp, value)])
        elif row.next_timestamp <= timestamp:
            row.insert_newest(timestamp, valid_to, value)
        else:
            row.insert_oldest(timestamp, value)
        self._put_row(key, segment, row)
