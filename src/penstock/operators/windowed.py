"""Aggregation by tumbling, hopping and unlimited windows, as in `KStreamWindowAggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.columns.steps import Columnar, InWindows, Step
from penstock.errors import TopologyError
from penstock.operators.aggregates import gathering
from penstock.operators.drops import EXPIRED_WINDOW, NULL_KEY
from penstock.operators.window_emission import Bounds, Closing, EmitClosed, closed_windows, own_old_value, updates, window_view
from penstock.processor import Host, Lineage, TableOperator, View
from penstock.records import NO_TIMESTAMP, Change, Headers, Process, Windowed
from penstock.state.timestamped import IMMUTABLE
from penstock.timing import MAX_MS, TimeWindows, UnlimitedWindows, Windows

_new = tuple.__new__  # cheaper than Windowed(...) and Change(...), once per record and window


@dataclass(frozen=True, slots=True)
class WindowAggregate(TableOperator, Columnar):
    """One aggregate per key and window; a record updates every open window that contains its timestamp."""

    lineage: ClassVar[Lineage] = Lineage.GATHERS

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
        """The node's `process`: one fetch, one aggregator call, one put and one emit per window."""
        initialize, aggregate, windows = self.initializer, self.aggregator, self.windows
        windows_for, grace, size = windows.windows_for, windows.grace_ms, _size_ms(windows)
        tumbling = isinstance(windows, TimeWindows) and windows.advance_ms == windows.size_ms
        store, observe = host.store(self.store), host.time.clock(host.node).observe
        put, dropped, failed = store.put, host.dropped, host.failed
        emit, cached, with_old, with_initial = updates(host, self.store, forward, self.send_old_values, self.emit_on_close)
        reads_old = emit is not None and own_old_value(host, self.store, self.send_old_values)
        hold = _holder(host, self.store) if cached and not reads_old else None
        fetch = store.fetch_entry if hold is None else store.held_entry
        emit_closed_first, emit_closed_last = self._closing(host, forward)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                dropped(NULL_KEY)
                return
            try:
                close_time = observe(timestamp) - grace
                if emit_closed_first is not None:
                    emit_closed_first(close_time, headers)
                for start in (timestamp - timestamp % size,) if tumbling else windows_for(timestamp):
                    end = start + size
                    if end <= close_time:
                        dropped(EXPIRED_WINDOW)
                        continue
                    entry = fetch(key, start)
                    result_time = timestamp
                    if entry is None:
                        aggregated = initialize()
                        old = aggregated if with_initial else None
                    else:
                        aggregated, latest = entry
                        if latest > timestamp:
                            result_time = latest
                        old = fetch(key, start)[0] if reads_old else aggregated if with_old else None
                    new = aggregate(key, value, aggregated)
                    if cached and new is None and entry is None:
                        continue  # a cache drops the deletion of a missing entry; the store does not see its time
                    if hold is None:
                        put(key, new, start, result_time)
                    else:
                        hold(key, new, start, result_time, None if entry is None else aggregated, value)
                    if emit is not None:
                        windowed, change = _new(Windowed, (key, start, end)), _new(Change, (new, old, True))
                        emit(windowed, change, result_time, headers, timestamp)
                if emit_closed_last is not None:
                    emit_closed_last(close_time, headers)
            except Exception as error:
                failed(error, key)

        return process

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


Hold = Callable[[Any, Any, int, int, Any, Any], None]
"""`hold(key, new, start, timestamp, before, value)`: `new` replaces `before`, None without one, because of a record's `value`."""


def _holder(host: Host, name: str) -> Hold | None:
    """Return how an aggregate is kept as an object until the epoch ends, or written if other code can change that object.

    An aggregator that returns the aggregate it was given has changed it, and may do so again and fail; one that returns the
    record's value, or a part of it, returns it for several windows, most likely where it had no aggregate yet.
    """
    if not host.spec(name).serdes[0].identity:
        return None
    store: Any = host.store(name)
    put, keep, can_hold = store.put, store.hold, store.can_hold

    def hold(key: Any, new: Any, start: int, timestamp: int, before: Any, value: Any) -> None:
        kind = type(new)
        if kind in IMMUTABLE or (before is not None and new is not before and new is not value and can_hold(kind)):
            keep(key, new, start, timestamp)
        else:
            put(key, new, start, timestamp)

    return hold


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
