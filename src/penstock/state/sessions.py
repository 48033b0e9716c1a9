"""Session stores: aggregates by key and session, kept for the store's retention after the session's end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.records import Windowed
from penstock.state.bounds import MAX_TIME
from penstock.state.by_value import writer
from penstock.state.segments import KeyFirst, Occurrence, Retention, TimeFirst
from penstock.state.store import HistoryStore

if TYPE_CHECKING:
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard

K = TypeVar("K")
V = TypeVar("V")

_suffix = Struct(">qq")
_pack = _suffix.pack
_unpack = _suffix.unpack
_SIZE = 16
_new = tuple.__new__


class SessionStore(HistoryStore[K, V]):
    """A session store. Sessions of a key are ordered by end, then by start; both are inclusive."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        super().__init__(spec)
        self._serialize = writer(spec.serdes[1])
        self._retention = Retention(shard, spec)
        self._layout = (
            TimeFirst(shard, spec, self._retention, _SIZE, before_key=_SIZE)
            if spec.time_ordered
            else KeyFirst(shard, spec, self._retention, _SIZE)
        )

    @property
    def observed_stream_time(self) -> int:
        """The latest session end the store has seen, -1 before the first."""
        return self._retention.observed

    def put(self, session: Windowed[K], aggregate: V | None) -> bool:
        """Set the aggregate of a key's session; None removes it. Return False if the session has expired: nothing is written."""
        raw = None if aggregate is None else self._serialize(aggregate)
        self._retention.advance(session.end)
        return self._put_raw(session, raw)

    def remove(self, session: Windowed[K]) -> None:
        """Remove a key's session."""
        self._retention.observe(session.end)
        self._put_raw(session, None)

    def fetch(self, key: K, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Yield all sessions of a key."""
        return self.find_sessions(key, 0, MAX_TIME, reverse)

    def fetch_keys(self, from_key: K | None, to_key: K | None, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Yield all sessions of the keys between two keys (inclusive; None: open)."""
        return self.find_sessions_by_keys(from_key, to_key, 0, MAX_TIME, reverse)

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """Return the aggregate of one session."""
        return None if end <= self._retention.horizon else self._fetch_one(key, start, end)

    def fetch_kept_session(self, key: K, start: int, end: int) -> V | None:
        """Like `fetch_session`, including a session past its retention whose segment is kept; see `find_kept_sessions`."""
        return None if self._retention.segment(end) < self._retention.floor else self._fetch_one(key, start, end)

    def _fetch_one(self, key: K, start: int, end: int) -> V | None:
        raw = self._layout.get(self._retention.segment(end), self._key_bytes(key), _pack(end, start))
        return None if raw is None else self._deserialize(raw)

    def find_sessions(
        self, key: K, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the sessions of a key that end at or after `earliest_end` and start at or before `latest_start`."""
        return self._find(key, self._earliest(earliest_end), latest_start, reverse)

    def find_kept_sessions(self, key: K, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed[K], V]]:
        """Like `find_sessions`, including sessions past their retention whose segment is kept.

        A cached table uses it to find sessions to merge: Kafka Streams' record cache shows expired ones too.
        """
        kept = self._retention.floor * self._retention.interval
        return self._find(key, max(earliest_end, kept, 0), latest_start, reverse=False)

    def _find(self, key: K, earliest: int, latest_start: int, reverse: bool) -> Iterator[tuple[Windowed[K], V]]:
        raw_key, deserialize = self._key_bytes(key), self._deserialize
        rows = self._layout.of_key(
            raw_key, _pack(earliest, 0), _pack(MAX_TIME, max(latest_start, 0)), self._segments(earliest), reverse
        )
        for suffix, raw in rows:
            end, start = _unpack(suffix)
            if start <= latest_start:
                yield _new(Windowed, (key, start, end)), deserialize(raw)

    def find_sessions_by_keys(
        self, from_key: K | None, to_key: K | None, earliest_end: int, latest_start: int, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Like `find_sessions`, for the keys between two keys (inclusive; None: open), by segment and then byte order."""
        lower = None if from_key is None else self._serialize_key(from_key)
        upper = None if to_key is None else self._serialize_key(to_key)
        if lower is not None and upper is not None and lower > upper:
            return iter(())
        earliest = self._earliest(earliest_end)
        rows = self._layout.of_keys(lower, upper, self._segments(earliest), reverse)
        return self._typed(row for row in rows if _overlaps(row[1], earliest, latest_start))

    def find_by_end_range(self, earliest_end: int, latest_end: int) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the sessions of all keys that end within the given times.

        Like Kafka Streams, it includes sessions past their retention whose segment is kept: it finds the sessions that close
        because stream time has advanced.
        """
        earliest = max(earliest_end, self._retention.floor * self._retention.interval)
        latest = min(latest_end, self._retention.observed)
        if earliest > latest:
            return iter(())
        return self._typed(self._layout.of_times(earliest, latest, reverse=False))

    def all(self, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Yield all sessions."""
        return self.find_sessions_by_keys(None, None, 0, MAX_TIME, reverse)

    def items(self) -> Iterator[tuple[Windowed[K], V]]:
        """Yield sessions and aggregates, like a mapping; same as `all`."""
        return self.all()

    def before_commit(self) -> None:
        """See `StateStore`."""
        self._layout.purge()

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """See `StateStore`."""
        for row in keys:
            self._retention.advance(_unpack(row[-_SIZE:])[0])
        self._layout.restore(keys, values)

    def _put_raw(self, session: Windowed[Any], raw: bytes | None) -> bool:
        segment, key = self._retention.segment(session.end), self._key_bytes(session.key)
        if segment < self._retention.floor:
            return False
        self._layout.put(segment, key, _pack(session.end, session.start), raw)
        return True

    def _earliest(self, earliest_end: int) -> int:
        return max(earliest_end, self._retention.horizon + 1, 0)

    def _segments(self, earliest: int) -> range:
        return range(self._retention.segment(earliest), self._retention.segment(self._retention.observed) + 1)

    def _typed(self, rows: Iterable[Occurrence]) -> Iterator[tuple[Windowed[K], V]]:
        deserialize_key, deserialize = self._deserialize_key, self._deserialize
        for key, suffix, raw in rows:
            end, start = _unpack(suffix)
            yield _new(Windowed, (deserialize_key(key), start, end)), deserialize(raw)


def _overlaps(suffix: bytes, earliest_end: int, latest_start: int) -> bool:
    end, start = _unpack(suffix)
    return bool(end >= earliest_end and start <= latest_start)
