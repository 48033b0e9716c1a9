"""When a node forwards a window's results: with every update, or once when the window closes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import StateError
from penstock.operators.emission import Emit, emitter, immediate
from penstock.processor import Host, View
from penstock.records import NO_HEADERS, NO_TIMESTAMP, Change, Headers, Process, ValueAndTimestamp, Windowed
from penstock.state.buffers import NEVER

EmitClosed = Callable[[int, Headers], None]
"""`emit_closed(close_time, headers)`: forward every window that ended before `close_time` and was not forwarded yet."""

Bounds = Callable[[int, int], "tuple[int, int] | None"]
"""`bounds(last, close_time)`: the windows that closed since `last`, as a range of times for the store, both inclusive."""


class Updates(NamedTuple):
    """How a node forwards each update; `emit` is None if results wait for their window to close.

    The old value of a window's first result depends on the cache, as in Kafka Streams: without a cache it is the aggregate
    that the update started from (such as the initial one), with a cache it is what the store had: None.
    """

    emit: Emit | None
    cached: bool
    with_old: bool
    with_initial: bool


def updates(host: Host, store: str, forward: Process, send_old_values: bool, emit_on_close: bool) -> Updates:
    """Return how a node that keeps its windows in `store` forwards updates."""
    if emit_on_close:
        return Updates(None, cached=False, with_old=False, with_initial=False)
    if host.spec(store).cached:
        return Updates(emitter(host, store, forward, send_old_values), cached=True, with_old=True, with_initial=False)
    # The node sets old values only if they are needed, so there is nothing to strip from a change.
    emit = immediate(forward, send_old_values=True)
    return Updates(emit, cached=False, with_old=send_old_values, with_initial=send_old_values)


def own_old_value(host: Host, store: str, send_old_values: bool) -> bool:
    """Return whether a window's old value must be read separately, because an aggregator may change the aggregate in place.

    Kafka Streams reads it from the store when a cache is flushed; without a cache it sends the same object.
    """
    return send_old_values and host.spec(store).cached


class Closing(NamedTuple):
    """When windows close: `bounds` finds the closed ones, `next_end(last)` the first time after `last` at which one may end."""

    bounds: Bounds
    next_end: Callable[[int], int]
    size_ms: int
    grace_ms: int


def closed_windows(host: Host, store: str, forward: Process, closing: Closing) -> EmitClosed:
    """Return what emits the closed windows of a timestamped window store, ordered by start and then by key.

    With watermarks no record closes a window, so results have no headers.
    """
    kept, last_close = host.store(store), last_close_time(host, store)
    fetch_all = kept.entries.fetch_all
    bounds, next_end, size, grace = closing

    def emit_closed(close_time: int, headers: Headers) -> None:
        last = last_close.value
        span = bounds(last, close_time) if close_time > last else None
        if span is None:
            return
        for windowed, (value, timestamp) in fetch_all(*span):
            forward(windowed, Change(value), timestamp, headers)
        last_close.value = close_time

    def due() -> int:
        is_open = kept.observed_stream_time != NO_TIMESTAMP and kept.observed_stream_time + size > last_close.value
        return next_end(last_close.value) + grace if is_open else NEVER

    host.time.wait_for_watermark(due, lambda watermark: emit_closed(watermark - grace, NO_HEADERS))
    return closes_nothing if host.time.has_watermarks else emit_closed


def closes_nothing(close_time: int, headers: Headers) -> None:
    """Emit nothing: windows wait for the application's watermark, not for records."""


def last_close_time(host: Host, store: str) -> Any:
    """Return the register with the close time up to which a node has emitted."""
    return host.register(f"{store}:emitted-until", NO_TIMESTAMP)


def window_view(host: Host, store: str) -> View:
    """Return the view of a table of time windows, read by windowed key."""
    fetch = host.store(store).fetch_entry

    def get(windowed: Windowed[Any]) -> ValueAndTimestamp[Any] | None:
        entry: ValueAndTimestamp[Any] | None = fetch(windowed.key, windowed.start)
        return entry

    return View(get, no_history, is_versioned=False)


def no_history(windowed: Windowed[Any], timestamp: int) -> ValueAndTimestamp[Any] | None:
    """Raise: a windowed table cannot be read as of a time."""
    raise StateError(f"Cannot read {windowed!r} as of {timestamp}: windowed tables have no versions.")
