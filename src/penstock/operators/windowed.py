"""Aggregation by tumbling, hopping and unlimited windows, as in `KStreamWindowAggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import FAILURES, TopologyError
from penstock.expressions.columns.steps import Columnar, InWindows, Step
from penstock.operators.aggregates import gathering
from penstock.operators.drops import EXPIRED_WINDOW, NULL_KEY
from penstock.operators.emission import by_value
from penstock.operators.window_emission import (
    Bounds,
    Closing,
    EmitClosed,
    Updates,
    closed_windows,
    own_old_value,
    updates,
    window_view,
)
from penstock.processor import Host, Lineage, TableOperator, View
from penstock.records import NO_TIMESTAMP, Change, Headers, Process, Windowed
from penstock.timing import MAX_MS, TimeWindows, UnlimitedWindows, Windows

_new = tuple.__new__  # cheaper than Windowed(...) and Change(...), once per record and window


@dataclass(frozen=True, slots=True)
class WindowAggregate(TableOperator, Columnar):
    """One aggregate per key and window; a record updates every open window that contains its timestamp."""

    lineage: ClassVar[Lineage] = Lineage.GATHERS
    retries_what_it_reads: ClassVar[bool] = True

    store: str
    windows: Windows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    emit_on_close: bool
    send_old_values: bool

    def __post_init__(self) -> None:
        if self.emit_on_close and isinstance(self.windows, UnlimitedWindows):
            raise TopologyError("Unlimited windows never close, so their results cannot be emitted on window close.")

    def in_columns(self) -> Step | None:
        if not isinstance(self.windows, TimeWindows) or self.emit_on_close or self.send_old_values:
            return None
        return gathering(self.aggregator, self.store, NULL_KEY, InWindows(self.windows, EXPIRED_WINDOW))

    def bind(self, host: Host, forward: Process) -> Process:
        """The node's `process`: one fetch and one aggregator call per window, then one put and one emit for each."""
        windows, dropped, failed = self.windows, host.dropped, host.failed
        windows_for, grace, size = windows.windows_for, windows.grace_ms, _size_ms(windows)
        tumbling = isinstance(windows, TimeWindows) and windows.advance_ms == windows.size_ms
        observe = host.time.clock(host.node).observe
        emit, cached, _, _ = kept = updates(host, self.store, forward, self.send_old_values, self.emit_on_close)
        attempt, put = self._attempt(host, kept)
        emit_closed_first, emit_closed_last = self._closing(host, forward)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                dropped(NULL_KEY)
                return
            try:
                close_time = observe(timestamp) - grace
                if emit_closed_first is not None:
                    emit_closed_first(close_time, headers)
                # All windows are computed before any is written: a record that fails in one leaves nothing in the others.
                updated: list[tuple[int, Any, Any, int]] = []
                for start in (timestamp - timestamp % size,) if tumbling else windows_for(timestamp):
                    if start + size <= close_time:
                        dropped(EXPIRED_WINDOW)
                    else:
                        updated.append((start, *attempt(key, value, timestamp, start)))
                for start, new, old, result_time in updated:
                    if new is None and cached and old is None:
                        continue  # a cache drops the deletion of a missing entry; the store does not see its time
                    put(key, new, start, result_time)
                    if emit is not None:
                        windowed, change = _new(Windowed, (key, start, start + size)), _new(Change, (new, old, True))
                        emit(windowed, change, result_time, headers, timestamp)
                if emit_closed_last is not None:
                    emit_closed_last(close_time, headers)
            except FAILURES as error:
                failed(error, key)

        return process

    def _attempt(self, host: Host, kept: Updates) -> tuple[Callable[..., tuple[Any, Any, int]], Callable[..., Any]]:
        """Return how a record is added to a window, as the new and the old value and their time, and how these are written."""
        initialize, aggregate = self.initializer, self.aggregator
        store, spec = host.store(self.store), host.spec(self.store)
        emit, cached, with_old, with_initial = kept
        reads_old = emit is not None and own_old_value(host, self.store, self.send_old_values)
        holds = cached and not reads_old and spec.serdes[0].identity
        fetch, put = (store.held_entry, store.hold) if holds else (store.fetch_entry, store.put)
        hold = by_value(spec)

        def updated(key: Any, value: Any, timestamp: int, start: int) -> tuple[Any, Any, int]:
            entry = fetch(key, start)
            if entry is None:
                aggregated = initialize()
                return hold(aggregate(key, value, aggregated)), aggregated if with_initial else None, timestamp
            aggregated, latest = entry
            old = fetch(key, start)[0] if reads_old else aggregated if with_old else None
            return hold(aggregate(key, value, aggregated)), old, max(timestamp, latest)

        return host.retried(updated), put

    def view(self, host: Host) -> View:
        """Reads by `Windowed` key."""
        return window_view(host, self.store)

    def _closing(self, host: Host, forward: Process) -> tuple[EmitClosed | None, EmitClosed | None]:
        """Return what emits closed windows before a record is added, and what does so afterwards: at most one is not None.

        The order matters when stream time jumps, because the store drops windows past their retention as soon as it gets the
        new one. Kafka Streams' cache still shows the old ones; without a cache they are lost.
        """
        if not self.emit_on_close or isinstance(self.windows, UnlimitedWindows):
            return None, None
        emit_closed = closed_windows(host, self.store, forward, _closing(self.windows))
        return (emit_closed, None) if host.spec(self.store).cached else (None, emit_closed)


def _size_ms(windows: Windows) -> int:
    # Kafka Streams' unlimited window ends with time itself, wherever it starts.
    return MAX_MS - windows.start_ms if isinstance(windows, UnlimitedWindows) else windows.size_ms


def _closing(windows: Windows) -> Closing:
    """Return when windows close; time windows end every `advance_ms`."""
    size, advance = windows.size_ms, getattr(windows, "advance_ms", windows.size_ms)

    def next_end(last: int) -> int:
        return int(max(0, ((last - size) // advance + 1) * advance) + size)

    return Closing(_closed_since(windows), next_end, size, windows.grace_ms)


def _closed_since(windows: Windows) -> Bounds:
    """Return the starts to read: a window `[start, end)` closes when the close time reaches its end."""
    size, windows_for = windows.size_ms, windows.windows_for

    def bounds(last: int, close_time: int) -> tuple[int, int] | None:
        upper = close_time - size
        if upper < 0:
            return None
        if last == NO_TIMESTAMP:
            return 0, upper
        seen = max(0, last - size)
        # Most records close nothing: if both times are in the same windows, none has ended in between.
        return None if list(windows_for(upper)) == list(windows_for(seen)) else (seen + 1, upper)

    return bounds
