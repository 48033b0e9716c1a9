"""When a window's results leave its node: with every update, or once when stream time has closed the window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import StateError
from penstock.operators.emission import Emit, emitter, immediate
from penstock.processor import Host, View
from penstock.records import NO_HEADERS, NO_TIMESTAMP, Change, Headers, Process, ValueAndTimestamp, Windowed
from penstock.state.buffers import NEVER

EmitClosed = Callable[[int, Headers], None]
"""`emit_closed(close_time, headers)`: send on every window that ended before `close_time` and was not sent yet."""

Bounds = Callable[[int, int], "tuple[int, int] | None"]
"""`bounds(last, close_time)`: the windows that closed since `last`, as a range of times for the store, both inclusive."""


class Updates(NamedTuple):
    """How a node sends on each update; `emit` is None if results wait for their window to close.

    What Kafka Streams calls the old value of a window's first result depends on caching: without a cache it is the
    aggregate that the update started from (the initial one, say), out of a cache it is what the store held: nothing.
    """

    emit: Emit | None
    cached: bool
    with_old: bool
    with_initial: bool


def updates(host: Host, store: str, forward: Process, send_old_values: bool, emit_on_close: bool) -> Updates:
    """How a node that keeps its windows in `store` sends on updates."""
    if emit_on_close:
        return Updates(None, cached=False, with_old=False, with_initial=False)
    if host.spec(store).cached:
        return Updates(emitter(host, store, forward, send_old_values), cached=True, with_old=True, with_initial=False)
    # The node names old values only where they are wanted, so nothing is left to strip from a change.
    emit = immediate(forward, send_old_values=True)
    return Updates(emit, cached=False, with_old=send_old_values, with_initial=send_old_values)


def own_old_value(host: Host, store: str, send_old_values: bool) -> bool:
    """Whether the old value of a window must be read on its own, so that an aggregator may change the aggregate in place.

    Kafka Streams reads it from the store when a cache is flushed; without a cache it sends the very object.
    """
    return send_old_values and host.spec(store).cached


class Closing(NamedTuple):
    """When windows close: `bounds` finds those that did, `next_end` the first time after another at which one may end."""

    bounds: Bounds
    next_end: Callable[[int], int]
    size_ms: int
    grace_ms: int


def closed_windows(host: Host, store: str, forward: Process, closing: Closing) -> EmitClosed:
    """How a node that emits on close sends on the windows of a timestamped window store, by start and then by key.

    With watermarks no record closes a window: results have no headers then.
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

    host.wait_for_watermark(due, lambda watermark: emit_closed(watermark - grace, NO_HEADERS))
    return closes_nothing if host.has_watermarks else emit_closed


def closes_nothing(close_time: int, headers: Headers) -> None:
    """What a record does about windows that wait for the application's watermark."""


def last_close_time(host: Host, store: str) -> Any:
    """The register that tells up to which close time a node has emitted."""
    return host.register(f"{store}:emitted-until", NO_TIMESTAMP)


def window_view(host: Host, store: str) -> View:
    """How to read a table of time windows by its windowed key."""
    fetch = host.store(store).fetch_entry

    def get(windowed: Windowed) -> ValueAndTimestamp | None:
        entry: ValueAndTimestamp | None = fetch(windowed.key, windowed.start)
        return entry

    return View(get, no_history, is_versioned=False)


def no_history(windowed: Windowed, timestamp: int) -> ValueAndTimestamp | None:
    """What a windowed table says when asked for the past."""
    raise StateError(f"windowed tables keep no versions; asked for {windowed!r} as of {timestamp}")
