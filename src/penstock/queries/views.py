"""Read-only views of stores, like Kafka Streams' `ReadOnly…Store`: the methods of a processor's store that do not write.

Every read is as of a commit. Rows of all lanes come in one order: by the keys' bytes; in window and session stores by time
segment first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import merge
from operator import itemgetter
from struct import Struct
from typing import Any, Generic, TypeVar

from penstock.errors import QueryError, StateError
from penstock.queries.committed import Source
from penstock.queries.snapshots import Scan
from penstock.records import ValueAndTimestamp, VersionedRecord, Windowed
from penstock.state import MAX_TIME, KeyValueReads, StoreKind, entry_decoder, value_decoder
from penstock.timing import Instant, instant_ms

K = TypeVar("K")
V = TypeVar("V")
Position = tuple[int, bytes]
Raw = tuple[Position, Windowed[Any], Any]
"""A window or session: its position in the order of all rows, its key (as bytes) with its times, and its value (as bytes)."""

_first = itemgetter(0)
_pack_start = Struct(">q").pack
_pack_end_and_start = Struct(">qq").pack


class KeyValueView(KeyValueReads[K, V]):
    """A key-value store. `view[key]`, `view.get(key)`, `key in view`, `range`, `prefix_scan`, `all` and their reverses."""

    def __init__(self, source: Source, decode: Callable[[bytes], V] | None = None) -> None:
        key, value = source.spec.serdes
        self.has_times: bool = source.spec.kind is StoreKind.TIMESTAMPED or source.spec.ttl_ms is not None
        plain = value_decoder(value.deserialize) if self.has_times else value.deserialize
        super().__init__(key, decode or plain)
        self.name: str = source.spec.name
        self._source = source

    @property
    def epoch(self) -> int:
        """The epoch of the commit that a read now would be of."""
        return self._source.epoch

    def approximate_num_entries(self) -> int:
        """Return the number of keys, as far as the engines know it without counting."""
        return self._source.count()

    def find(self, key: bytes) -> tuple[bytes | None, int]:
        """Return the bytes of a key's value, and their epoch. If the view `has_times`, they start with eight bytes of time."""
        return self._source.find(key, partial(_raw_get, key))

    def rows(self, lower: bytes | None, upper: bytes | None, reverse: bool = False, **scan: Any) -> Scan[tuple[bytes, bytes]]:
        """Scan keys and values as bytes within bounds, the upper one exclusive; the iterator has an `epoch`."""

        def merged(stores: tuple[Any, ...]) -> Iterator[tuple[bytes, bytes]]:
            scans = [store._raw_scan(lower, upper, reverse) for store in stores]
            return scans[0] if len(scans) == 1 else merge(*scans, key=_first, reverse=reverse)

        return self._source.scan(merged, **scan)

    def _raw_get(self, key: bytes) -> bytes | None:
        return self.find(key)[0]

    def _raw_scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        return self.rows(lower, upper, reverse)


def _raw_get(key: bytes, store: KeyValueReads[Any, Any]) -> bytes | None:
    return store._raw_get(key)


class TimestampedKeyValueView(KeyValueView[K, V]):
    """A table's store: reads return plain values; `entry` and `entries` return them with their event times."""

    def entry(self, key: K) -> ValueAndTimestamp[V] | None:
        """Return a key's value with its event time."""
        return self.entries.get(key)

    @property
    def entries(self) -> KeyValueView[K, ValueAndTimestamp[V]]:
        """The same store, read with event times."""
        return KeyValueView(self._source, entry_decoder(self._source.spec.serdes[1].deserialize))


class HistoryView(Generic[K, V]):
    """What the views of stores with several values per key have in common."""

    def __init__(self, source: Source) -> None:
        key, value = source.spec.serdes
        self.name: str = source.spec.name
        self._source = source
        self._serialize_key = key.serialize
        self._deserialize_key = key.deserialize
        self._deserialize = value.deserialize

    @property
    def epoch(self) -> int:
        """The epoch of the commit that a read now would be of."""
        return self._source.epoch

    def _key_bytes(self, key: K) -> bytes:
        if key is None:
            raise StateError(f"The key is None: store {self.name!r} does not allow null keys.")
        return self._serialize_key(key)

    def _bound(self, key: K | None) -> bytes | None:
        return None if key is None else self._serialize_key(key)


class SegmentedView(HistoryView[K, V]):
    """What the views of windows and sessions have in common: rows are ordered by time segment, then by the keys' bytes."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._segment_ms = source.spec.segment_ms

    def _placed(
        self,
        found: Callable[[Any], Iterator[tuple[Windowed[Any], Any]]],
        place: Callable[[Windowed[Any]], Position],
        reverse: bool,
        start: Position | None,
        scan: dict[str, Any],
    ) -> Scan[Raw]:
        """Scan the store of each shard; each row has its position in the order of all rows. Rows before `start` are skipped."""

        def of(store: Any) -> Iterator[Raw]:
            for windowed, value in found(store):
                at = place(windowed)
                if start is None or at >= start:
                    yield at, windowed, value

        return self._source.scan(lambda stores: merge(*map(of, stores), key=_first, reverse=reverse), **scan)

    def _typed(self, rows: Iterator[Raw]) -> Iterator[tuple[Windowed[K], V]]:
        return ((Windowed(self._deserialize_key(raw.key), raw.start, raw.end), self._decoded(value)) for _, raw, value in rows)

    def _decoded(self, raw: Any) -> Any:
        return self._deserialize(raw)


class WindowView(SegmentedView[K, V]):
    """A window store. Times are window starts, inclusive; expired windows are skipped."""

    def __init__(self, source: Source, with_times: bool = False) -> None:
        super().__init__(source)
        self._with_times = with_times

    @property
    def entries(self) -> WindowView[K, ValueAndTimestamp[V]]:
        """The same store, read with event times."""
        if self._source.spec.kind is not StoreKind.TIMESTAMPED_WINDOW:
            raise QueryError(f"Store {self.name!r} keeps no event times: read it without entries.")
        return WindowView(self._source, with_times=True)

    def fetch(self, key: K, time: Instant) -> V | None:
        """Return the value of a key's window that starts at `time`."""
        raw_key, start = self._key_bytes(key), instant_ms(time, "time")
        raw, _ = self._source.find(raw_key, lambda store: self._reads(store)[0](raw_key, start))
        return None if raw is None else self._decoded(raw)

    def fetch_range(self, key: K, from_time: Instant, to_time: Instant, reverse: bool = False) -> Iterator[tuple[int, V]]:
        """Return start and value of a key's windows, by start."""
        raw_key, times = self._key_bytes(key), _times(from_time, to_time)

        def merged(stores: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
            scans = [self._reads(store)[1].fetch_range(raw_key, *times, reverse) for store in stores]
            return merge(*scans, key=_first, reverse=reverse)

        return ((start, self._decoded(raw)) for start, raw in self._source.scan(merged, raw_key))

    def fetch_keys(
        self, from_key: K | None, to_key: K | None, from_time: Instant, to_time: Instant, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return the windows of the keys between two, both inclusive, None unbounded; by time segment, then keys' bytes."""
        return self._typed(self.rows(self._bound(from_key), self._bound(to_key), *_times(from_time, to_time), reverse))

    def fetch_all(self, from_time: Instant, to_time: Instant, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Return the windows of all keys that start between two times."""
        return self.fetch_keys(None, None, from_time, to_time, reverse)

    def all(self, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Return all windows."""
        return self.fetch_all(0, MAX_TIME, reverse)

    def items(self) -> Iterator[tuple[Windowed[K], V]]:
        """Return windowed keys and values, like a mapping's `items`; the same as `all`."""
        return self.all()

    def rows(
        self,
        lower: bytes | None,
        upper: bytes | None,
        from_time: int,
        to_time: int,
        reverse: bool = False,
        start: Position | None = None,
        **scan: Any,
    ) -> Scan[Raw]:
        """Scan windows with their positions in the order of all rows, from `start` on; the iterator has an `epoch`."""

        def found(store: Any) -> Iterator[tuple[Windowed[Any], Any]]:
            fetch = self._reads(store)[1].fetch_keys
            if start is None:
                return fetch(lower, upper, from_time, to_time, reverse)  # type: ignore[no-any-return]
            return _resumed(fetch, start, 8, self._segment_ms, lower, upper, from_time, to_time)

        def place(window: Windowed[Any]) -> Position:
            return window.start // self._segment_ms, window.key + _pack_start(window.start)

        return self._placed(found, place, reverse, start, scan)

    def _reads(self, store: Any) -> tuple[Callable[[bytes, int], Any], Any]:
        return (store.fetch_entry, store.entries) if self._with_times else (store.fetch, store)

    def _decoded(self, raw: Any) -> Any:
        if self._with_times:
            return ValueAndTimestamp(self._deserialize(raw.value), raw.timestamp)
        return super()._decoded(raw)


class SessionView(SegmentedView[K, V]):
    """A session store. Sessions of a key are ordered by end, then by start; both are inclusive."""

    def fetch(self, key: K, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of a key."""
        return self.find_sessions(key, 0, MAX_TIME, reverse)

    def fetch_session(self, key: K, start: Instant, end: Instant) -> V | None:
        """Return the aggregate of one session."""
        raw_key, times = self._key_bytes(key), (instant_ms(start, "start"), instant_ms(end, "end"))
        raw, _ = self._source.find(raw_key, lambda store: store.fetch_session(raw_key, *times))
        return None if raw is None else self._deserialize(raw)

    def find_sessions(
        self, key: K, earliest_end: Instant, latest_start: Instant, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return the sessions of a key that end at or after one time and start at or before another."""
        raw_key, times = self._key_bytes(key), _times(earliest_end, latest_start)

        def merged(stores: tuple[Any, ...]) -> Iterator[tuple[Windowed[Any], bytes]]:
            scans = [store.find_sessions(raw_key, *times, reverse) for store in stores]
            return merge(*scans, key=lambda found: (found[0].end, found[0].start), reverse=reverse)

        rows = self._source.scan(merged, raw_key)
        return ((Windowed(key, raw.start, raw.end), self._deserialize(value)) for raw, value in rows)

    def fetch_keys(self, from_key: K | None, to_key: K | None, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of the keys between two, both inclusive, None unbounded."""
        return self.find_sessions_by_keys(from_key, to_key, 0, MAX_TIME, reverse)

    def find_sessions_by_keys(
        self, from_key: K | None, to_key: K | None, earliest_end: Instant, latest_start: Instant, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Like `find_sessions`, for the keys between two, both inclusive, None unbounded; by time segment, then keys' bytes."""
        return self._typed(self.rows(self._bound(from_key), self._bound(to_key), *_times(earliest_end, latest_start), reverse))

    def all(self, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions."""
        return self.fetch_keys(None, None, reverse)

    def items(self) -> Iterator[tuple[Windowed[K], V]]:
        """Return sessions and aggregates, like a mapping's `items`; the same as `all`."""
        return self.all()

    def rows(
        self,
        lower: bytes | None,
        upper: bytes | None,
        earliest_end: int,
        latest_start: int,
        reverse: bool = False,
        start: Position | None = None,
        **scan: Any,
    ) -> Scan[Raw]:
        """Scan sessions with their positions in the order of all rows, from `start` on; the iterator has an `epoch`."""

        def found(store: Any) -> Iterator[tuple[Windowed[Any], Any]]:
            if start is None:
                return store.find_sessions_by_keys(lower, upper, earliest_end, latest_start, reverse)  # type: ignore[no-any-return]
            find = partial(_sessions_ending, store, latest_start)
            return _resumed(find, start, 16, self._segment_ms, lower, upper, earliest_end, MAX_TIME)

        def place(session: Windowed[Any]) -> Position:
            return session.end // self._segment_ms, session.key + _pack_end_and_start(session.end, session.start)

        return self._placed(found, place, reverse, start, scan)


class VersionedView(HistoryView[K, V]):
    """A versioned key-value store: a key's value now, or as of a time."""

    def get(self, key: K, as_of: Instant | None = None) -> VersionedRecord[V] | None:
        """Return a key's newest version, or the one valid at `as_of`; None if there was none, or it is older than the history."""
        found, _ = self.find(self._key_bytes(key), MAX_TIME if as_of is None else instant_ms(as_of, "as_of"))
        return None if found is None else self._decoded(found)

    def history(self, key: K, from_time: Instant, to_time: Instant, reverse: bool = False) -> Iterator[VersionedRecord[V]]:
        """Return the versions that were valid at any time between two times, both inclusive, oldest first or newest first."""
        found, _ = self.versions(self._key_bytes(key), *_times(from_time, to_time))
        return map(self._decoded, reversed(found) if reverse else found)

    def find(self, key: bytes, as_of: int = MAX_TIME) -> tuple[VersionedRecord[Any] | None, int]:
        """Return a version of a key, with its value as bytes, and the epoch."""
        return self._source.find(key, lambda store: store.get(key, as_of))

    def versions(self, key: bytes, from_time: int, to_time: int) -> tuple[list[VersionedRecord[Any]], int]:
        """Return the versions of a key that were valid between two times, oldest first, values as bytes, and the epoch."""
        found, epoch = self._source.find(key, lambda store: list(store.history(key, from_time, to_time)) or None)
        return found or [], epoch

    def all(self) -> Iterator[tuple[K, VersionedRecord[V]]]:
        """Return the newest version of every key, in the order of the keys' bytes."""
        return ((self._deserialize_key(key), self._decoded(found)) for key, found in self.rows())

    def items(self) -> Iterator[tuple[K, VersionedRecord[V]]]:
        """Return keys and their newest versions, like a mapping's `items`; the same as `all`."""
        return self.all()

    def rows(
        self, lower: bytes | None = None, upper: bytes | None = None, **scan: Any
    ) -> Scan[tuple[bytes, VersionedRecord[Any]]]:
        """Scan keys within bounds, the upper one exclusive, with their newest versions; the iterator has an `epoch`."""
        return self._source.scan(lambda stores: merge(*(store.newest(lower, upper) for store in stores), key=_first), **scan)

    def _decoded(self, found: VersionedRecord[Any]) -> VersionedRecord[Any]:
        return found._replace(value=self._deserialize(found.value))


View = KeyValueView[Any, Any] | WindowView[Any, Any] | SessionView[Any, Any] | VersionedView[Any, Any]

_VIEWS: dict[StoreKind, Callable[[Source], View]] = {
    StoreKind.KEY_VALUE: KeyValueView,
    StoreKind.TIMESTAMPED: TimestampedKeyValueView,
    StoreKind.WINDOW: WindowView,
    StoreKind.TIMESTAMPED_WINDOW: WindowView,
    StoreKind.SESSION: SessionView,
    StoreKind.VERSIONED: VersionedView,
}


def view_of(source: Source) -> View:
    """Return the view that fits a store."""
    return _VIEWS[source.spec.kind](source)


def _times(first: Instant, last: Instant) -> tuple[int, int]:
    return instant_ms(first, "from_time"), instant_ms(last, "to_time")


def _resumed(
    find: Callable[..., Iterator[tuple[Windowed[Any], Any]]],
    start: Position,
    suffix_size: int,
    segment_ms: int,
    lower: bytes | None,
    upper: bytes | None,
    first: int,
    last: int,
) -> Iterator[tuple[Windowed[Any], Any]]:
    """Continue in the segment that a scan had reached, from its key on, then in later segments."""
    segment, row = start
    end = (segment + 1) * segment_ms - 1
    key = _first_after(row[:-suffix_size], end)
    yield from find(key if lower is None else max(key, lower), upper, max(first, segment * segment_ms), min(last, end))
    yield from find(lower, upper, max(first, end + 1), last)


def _first_after(key: bytes, latest: int) -> bytes:
    """Return the lowest key whose rows can sort after a row of `key`: rows sort by key and time as one byte string, so a prefix
    of `key` can be such a key.
    """
    limit = _pack_start(latest)
    return next((key[:size] for size in range(len(key)) if key[size : size + 8] <= limit), key)


def _sessions_ending(
    store: Any, latest_start: int, lower: bytes | None, upper: bytes | None, first: int, last: int
) -> Iterator[tuple[Windowed[Any], Any]]:
    """Find the sessions that end between two times, both inclusive."""
    found = store.find_sessions_by_keys(lower, upper, first, latest_start)
    return ((session, value) for session, value in found if session.end <= last)
