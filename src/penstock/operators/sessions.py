"""Aggregation by session windows, as in `KStreamSessionWindowAggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import FAILURES
from penstock.operators.drops import EXPIRED_WINDOW, NULL_KEY
from penstock.operators.emission import by_value
from penstock.operators.window_emission import (
    EmitClosed,
    closes_nothing,
    last_close_time,
    no_history,
    updates,
)
from penstock.processor import Host, Lineage, TableOperator, View
from penstock.records import NO_HEADERS, Change, Headers, Process, ValueAndTimestamp, Windowed
from penstock.state.buffers import NEVER
from penstock.timing import MAX_MS, SessionWindows


@dataclass(frozen=True, slots=True)
class SessionAggregate(TableOperator):
    """One aggregate per key and session; a record merges all sessions within the gap around it.

    A result's timestamp is the end of its session. When a session grows, its old window is retracted first.
    """

    lineage: ClassVar[Lineage] = Lineage.GATHERS
    retries_what_it_reads: ClassVar[bool] = True
    windows_include_end: ClassVar[bool] = True

    store: str
    windows: SessionWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any]
    emit_on_close: bool
    send_old_values: bool

    def bind(self, host: Host, forward: Process) -> Process:
        """The node's `process`: everything is read and computed before anything is written."""
        lateness = self.windows.gap_ms + self.windows.grace_ms
        store, observe = host.store(self.store), host.time.clock(host.node).observe
        put, remove, dropped, failed = store.put, store.remove, host.dropped, host.failed
        emit, cached, with_old, _ = updates(host, self.store, forward, self.send_old_values, self.emit_on_close)
        fetch = store.fetch_kept_session
        reads_old = emit is not None and self.send_old_values
        hold, attempt = by_value(host.spec(self.store)), self._attempt(host, cached)
        emit_closed = _closing(host, self.store, forward, lateness) if self.emit_on_close else None

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                dropped(NULL_KEY)
                return
            try:
                close_time = observe(timestamp) - lateness
                start, end, sessions, new = attempt(key, value, timestamp, close_time)
                if end < close_time:
                    dropped(EXPIRED_WINDOW)
                else:
                    # Kafka Streams sends the record's headers only from a cache.
                    sent_headers = headers if cached else NO_HEADERS
                    new, old = hold(new), None
                    if start != end:
                        for session, session_value in sessions:
                            before = fetch(key, session.start, session.end) if reads_old else session_value
                            remove(session)
                            if emit is not None:
                                change = Change(None, before if with_old else None)
                                emit(session, change, session.end, sent_headers, session.end)
                    elif sessions and cached:
                        # The session of the same instant is replaced, not retracted; without a cache its old value is not sent.
                        old = fetch(key, start, end) if reads_old else sessions[0][1]
                    session = Windowed(key, start, end)
                    if not cached or new is not None or old is not None:
                        put(session, new)  # a cache drops the deletion of a missing entry, and its time
                    if emit is not None:
                        emit(session, Change(new, old), end, sent_headers, end)
                if emit_closed is not None:
                    emit_closed(close_time, headers)
            except FAILURES as error:
                failed(error, key)

        return process

    def _attempt(self, host: Host, cached: bool) -> Callable[..., tuple[int, int, list[tuple[Windowed[Any], Any]], Any]]:
        """Return how a record is merged with the sessions around it: start, end, those sessions, and the aggregate of all."""
        initialize, aggregate, merge, gap = self.initializer, self.aggregator, self.merger, self.windows.gap_ms
        store, has_watermarks = host.store(self.store), host.time.has_watermarks
        find = store.find_kept_sessions if cached else store.find_sessions

        def merged(
            key: Any, value: Any, timestamp: int, close_time: int
        ) -> tuple[int, int, list[tuple[Windowed[Any], Any]], Any]:
            start = end = timestamp
            aggregated = initialize()
            sessions = list(find(key, timestamp - gap, timestamp + gap))
            if has_watermarks:
                # A session that the watermark closed stays closed, whether or not a commit has emitted it yet.
                sessions = [found for found in sessions if found[0].end >= close_time]
            for session, session_value in sessions:
                aggregated = merge(key, aggregated, session_value)
                start, end = min(start, session.start), max(end, session.end)
            return start, end, sessions, None if end < close_time else aggregate(key, value, aggregated)

        return host.retried(merged)

    def view(self, host: Host) -> View:
        """Reads by `Windowed` key; an entry's timestamp is the end of its session."""
        store = host.store(self.store)
        fetch = store.fetch_kept_session if host.spec(self.store).cached else store.fetch_session

        def get(windowed: Windowed[Any]) -> ValueAndTimestamp[Any] | None:
            value = fetch(windowed.key, windowed.start, windowed.end)
            return None if value is None else ValueAndTimestamp(value, windowed.end)

        return View(get, no_history, is_versioned=False)


def _closing(host: Host, store: str, forward: Process, lateness_ms: int) -> EmitClosed:
    """Emit each session `[start, end]` once the close time is past its end, ordered by end, start and key."""
    find, last_close = host.store(store).find_by_end_range, last_close_time(host, store)

    def emit_closed(close_time: int, headers: Headers) -> None:
        earliest, latest = max(0, last_close.value), close_time - 1
        if latest < earliest:
            return
        for session, value in find(earliest, latest):
            forward(session, Change(value), session.end, headers)
        last_close.value = close_time

    def due() -> int:
        first = next(iter(find(max(0, last_close.value), MAX_MS)), None)
        return NEVER if first is None else first[0].end + 1 + lateness_ms

    host.time.wait_for_watermark(due, lambda watermark: emit_closed(watermark - lateness_ms, NO_HEADERS))
    return closes_nothing if host.time.has_watermarks else emit_closed
