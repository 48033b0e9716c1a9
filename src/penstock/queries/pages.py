"""JSON answers of bounded size: one entry, or a page of rows with a cursor for the next page.

A page is of one epoch; the next may be of a later epoch, and says so. A page starts after a key, not after a number of rows, so a
deep page costs no more than the first.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import msgspec

from penstock.errors import QueryError, QueryTimeoutError
from penstock.queries.committed import CommittedState, Source, pinned
from penstock.queries.forms import encoded, json_of, key_of, prefix_of
from penstock.queries.snapshots import Scan
from penstock.queries.views import KeyValueView, SessionView, VersionedView, View, WindowView, view_of
from penstock.records import ValueAndTimestamp, VersionedRecord, Windowed
from penstock.state import MAX_TIME, StoreKind, after, after_prefix, timestamp_of

PAGE_BYTES = 4 << 20
PAGE_S = 2.0

_pack_time = Struct(">q").pack

Row = tuple[Any, bytes]
"""A row's position in the order of all rows, and the row as JSON."""


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """Where a page ended: a key's bytes, or a time segment and a row's bytes; and how many rows of that position it had."""

    key: bytes
    segment: int = -1
    seen: int = 0

    def encode(self) -> str:
        """Encode as text for a URL."""
        return urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Cursor:
        """Decode the text that `encode` returned."""
        try:
            return msgspec.msgpack.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, msgspec.MsgspecError):
            raise QueryError(f"Invalid cursor {text[:50]!r}: use the cursor of the previous page, unchanged.") from None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The requested rows: all bounds are inclusive, `None` is unbounded. Times are those of windows."""

    lower: bytes | None = None
    upper: bytes | None = None
    prefix: bytes | None = None
    from_time: int = 0
    to_time: int = MAX_TIME

    @property
    def end(self) -> bytes | None:
        """The upper bound, exclusive."""
        if self.prefix is not None:
            return after_prefix(self.prefix)
        return None if self.upper is None else after(self.upper)


class StoreAnswers:
    """The JSON answers of one store."""

    def __init__(self, state: CommittedState, store: str) -> None:
        spec = state.spec(store)
        key, value = spec.serdes
        self.name = store
        self._state = state
        self.key: Callable[[str], bytes] = key_of(key)
        self.prefix: Callable[[str], bytes] = prefix_of(key)
        self.view: View = view_of(Source(state, store))
        self._by_key = self.view if isinstance(self.view, KeyValueView) else None
        self._key_json = json_of(key)
        self._value_json = json_of(value)
        self._kind = spec.kind

    def get(self, key: bytes) -> tuple[bytes | None, int]:
        """Return a key's entry as JSON, None if there is none, and the epoch."""
        view = self._by_key
        if view is None:
            raise self._no_single_value()
        raw, epoch = view.find(key)
        return None if raw is None else self._entry(key, raw, view.has_times), epoch

    def version(self, key: bytes, as_of: int) -> tuple[bytes | None, int]:
        """Return the version of a key that was valid at a time as JSON, None if there is none, and the epoch."""
        if not isinstance(self.view, VersionedView):
            raise QueryError(f"Store {self.name!r} keeps no versions: remove as_of.")
        found, epoch = self.view.find(key, as_of)
        return None if found is None else self._row(key, self._version(found)), epoch

    def range(self, bounds: Bounds, limit: int, cursor: str | None) -> bytes:
        """Return a page of the rows within bounds, in the order of the keys' bytes."""
        start = Cursor(b"") if cursor is None else Cursor.decode(cursor)
        scan, rows = self._scan(bounds, None if cursor is None else start)
        return _page(scan, rows, limit, start)

    def get_all(self, keys: Sequence[bytes]) -> tuple[int, list[bytes | None]]:
        """Return the epoch, and the entries of many keys as JSON."""
        with pinned(self._state, self.name) as source:
            view = view_of(source)
            if not isinstance(view, KeyValueView):
                raise self._no_single_value()
            entries = [(key, view.find(key)[0]) for key in keys]
            found = [None if raw is None else self._entry(key, raw, view.has_times) for key, raw in entries]
            return source.epoch, found

    def _no_single_value(self) -> QueryError:
        return QueryError(f"Store {self.name!r} has several values per key: use fetch for its windows, sessions or versions.")

    def fetch(self, key: bytes, bounds: Bounds, limit: int, cursor: str | None) -> bytes:
        """Return a page of a key's windows, sessions or versions, by time."""
        view = self.view
        if isinstance(view, KeyValueView):
            raise QueryError(f"Store {self.name!r} has one value per key: use get.")
        if isinstance(view, VersionedView):
            return self._history(view, key, bounds, limit, cursor)
        return self.range(Bounds(key, key, None, bounds.from_time, bounds.to_time), limit, cursor)

    def _history(self, view: VersionedView[Any, Any], key: bytes, bounds: Bounds, limit: int, cursor: str | None) -> bytes:
        start = Cursor(b"") if cursor is None else Cursor.decode(cursor)
        found, epoch = view.versions(key, bounds.from_time, bounds.to_time)
        shown = ((version.timestamp, self._row(key, self._version(version))) for version in found)
        later = ((_pack_time(time), row) for time, row in shown if cursor is None or _pack_time(time) > start.key)
        return _answer(epoch, *_taken(later, limit, Cursor(b"")))

    def _scan(self, bounds: Bounds, start: Cursor | None) -> tuple[Scan[Any], Callable[[Any], Row]]:
        """Return the rows from a position on, and the function that shows a row."""
        view = self.view
        if isinstance(view, (WindowView, SessionView)):
            if bounds.prefix is not None:
                raise QueryError(f"Store {self.name!r} cannot be read by prefix: use from and to.")
            place = None if start is None else (start.segment, start.key)
            if isinstance(view, WindowView) and self._kind is StoreKind.TIMESTAMPED_WINDOW:
                view = view.entries
            times = (bounds.from_time, bounds.to_time)
            return view.rows(bounds.lower, bounds.upper, *times, start=place, seconds=PAGE_S), self._window
        lower = bounds.lower if bounds.prefix is None else bounds.prefix
        if start is not None:
            lower = max(start.key, lower or b"")
        if isinstance(view, VersionedView):
            return view.rows(lower, bounds.end, seconds=PAGE_S), self._versioned
        return view.rows(lower, bounds.end, seconds=PAGE_S), self._timed if view.has_times else self._plain

    def _entry(self, key: bytes, raw: bytes, has_time: bool) -> bytes:
        if not has_time:
            return self._row(key, b'"value":%s' % self._value_json(raw))
        return self._row(key, b'"value":%s,"timestamp":%d' % (self._value_json(raw[8:]), timestamp_of(raw)))

    def _plain(self, row: tuple[bytes, bytes]) -> Row:
        return row[0], self._entry(*row, has_time=False)

    def _timed(self, row: tuple[bytes, bytes]) -> Row:
        return row[0], self._entry(*row, has_time=True)

    def _versioned(self, row: tuple[bytes, VersionedRecord[Any]]) -> Row:
        return row[0], self._row(row[0], self._version(row[1]))

    def _window(self, row: tuple[tuple[int, bytes], Windowed[Any], Any]) -> Row:
        place, window, value = row
        if isinstance(value, ValueAndTimestamp):
            rest = b'"value":%s,"timestamp":%d' % (self._value_json(value.value), value.timestamp)
        else:
            rest = b'"value":%s' % self._value_json(value)
        return place, self._row(window.key, b'"window_start":%d,"window_end":%d,%s' % (window.start, window.end, rest))

    def _version(self, found: VersionedRecord[Any]) -> bytes:
        value, valid_from, valid_to = found
        return b'"value":%s,"timestamp":%d,"valid_to":%s' % (self._value_json(value), valid_from, encoded(valid_to))

    def _row(self, key: bytes, rest: bytes) -> bytes:
        return b'"key":%s,%s' % (self._key_json(key), rest)


def _page(scan: Scan[Any], show: Callable[[Any], Row], limit: int, start: Cursor) -> bytes:
    """Return the page that follows `start`, with as many rows as the limits allow."""
    try:
        rows, last = _taken(map(show, scan), limit, start)
    finally:
        scan.close()
    return _answer(scan.epoch, rows, last)


def _taken(shown: Iterator[Row], limit: int, start: Cursor) -> tuple[list[bytes], Cursor | None]:
    """Return the rows of a page, and where it ends if there are more."""
    deadline = time.monotonic() + PAGE_S
    rows: list[bytes] = []
    place: Any = start.key if start.segment < 0 else (start.segment, start.key)
    seen, skip, size = 0, start.seen, 0
    last = start
    try:
        for where, row in shown:
            seen = seen + 1 if where == place else 1
            if where == place and seen <= skip:
                continue
            if len(rows) == limit or (rows and (size + len(row) > PAGE_BYTES or time.monotonic() > deadline)):
                return rows, last
            if where != place:
                place, skip = where, 0
            rows.append(row)
            size += len(row)
            last = Cursor(where, -1, seen) if isinstance(where, bytes) else Cursor(where[1], where[0], seen)
    except QueryTimeoutError:
        if not rows:
            raise
        return rows, last
    return rows, None


def _answer(epoch: int, rows: list[bytes], last: Cursor | None) -> bytes:
    cursor = b"null" if last is None else b'"%s"' % last.encode().encode()
    return b'{"epoch":%d,"rows":[%s],"cursor":%s}' % (epoch, b",".join(b"{%s}" % row for row in rows), cursor)
