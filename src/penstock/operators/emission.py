"""When a node forwards a table's change: immediately, or (cached) once per key when the epoch is flushed.

As in Kafka Streams, a cache decides what downstream sees: the last change of a key since the previous flush, in the order of
the last writes, with the value before the first write as its old value. Session and expiring stores are written immediately and
only their emission waits; key-value tables and window stores hold values themselves (`state.CachedKeyValueStore`,
`TimestampedWindowStore.hold`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.processor import Host
from penstock.records import Change, Headers, Process, Windowed
from penstock.state import StoreKind, StoreSpec, giver, holder

Emit = Callable[[Any, Change, int, Headers, int], None]
"""`emit(key, change, timestamp, headers, record_timestamp)`."""


def by_value(spec: StoreSpec) -> Callable[[Any], Any]:
    """Return how the table that owns a store holds a value that waits in its cache.

    Without a cache it is written at once. Ready aggregates change no aggregate, they make a new one, and no other code has it
    before it is written.
    """
    return holder(spec.serdes[1]) if spec.cached and spec.aggregates is None else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def emitter(host: Host, store: str, forward: Process, send_old_values: bool) -> Emit:
    """Return how a node that keeps its table in `store` forwards changes; with a cache, it gives new values as they are held."""
    if host.spec(store).cached:
        return _deferred(host, store, forward, send_old_values)
    return immediate(forward, send_old_values)


def immediate(forward: Process, send_old_values: bool) -> Emit:
    """Forward every change immediately, as a node without a store does."""

    def with_old(key: Any, change: Change, timestamp: int, headers: Headers, record_timestamp: int) -> None:
        forward(key, change, timestamp, headers)

    def without_old(key: Any, change: Change, timestamp: int, headers: Headers, record_timestamp: int) -> None:
        forward(key, Change(change.new, None, change.is_latest), timestamp, headers)

    return with_old if send_old_values else without_old


def _deferred(host: Host, store: str, forward: Process, send_old_values: bool) -> Emit:
    still_shown = _still_shown(host, store)
    give = giver(host.spec(store).serdes[1])
    settle = host.store(store).settle if host.spec(store).kind is StoreKind.TIMESTAMPED_WINDOW else lambda: None

    def flush(pending: dict[Any, tuple[Any, Any, Any, int, Headers]]) -> None:
        if not pending:
            return
        settle()  # before forwarding: what is forwarded may be changed downstream
        changes = list(pending.values())
        pending.clear()  # before forwarding: a change downstream may reach this same store
        shown = [old if still_shown(key, new, old) else None for key, new, old, _, _ in changes]
        for (key, new, _, timestamp, headers), old in zip(changes, shown, strict=True):
            if new is not None or old is not None:
                forward(key, Change(give(new), old if send_old_values else None), timestamp, headers)

    identity = _identity(host.spec(store).key)
    pending = host.pending(store, flush)

    def emit(key: Any, change: Change, timestamp: int, headers: Headers, record_timestamp: int) -> None:
        name = key if identity is None else identity(key)
        earlier = pending.pop(name, None)  # popped, then set again: the flush follows the order of the last writes
        old = change.old if earlier is None else earlier[2]
        pending[name] = (key, change.new, old, timestamp if change.new is not None else record_timestamp, headers)

    return emit


def _still_shown(host: Host, store: str) -> Callable[[Any, Any, Any], bool]:
    """Return whether the store still shows a key's old value while its cache is flushed, key by key.

    Kafka Streams reads old values below the cache at that moment, and every write advances a window store's time.
    """
    spec = host.spec(store)
    if spec.retention_ms is None or host.time.has_watermarks:  # the watermark keeps every open window within its retention
        return lambda key, new, old: True
    retention, kept, by_end = spec.retention_ms, host.store(store), spec.kind is StoreKind.SESSION
    observed = kept.observed_stream_time

    def still_shown(key: Any, new: Any, old: Any) -> bool:
        nonlocal observed
        time = key.end if by_end else key.start
        shown = old is not None and time > observed - retention
        if shown or new is not None:
            observed = max(observed, time)
        return shown

    return still_shown


def _identity(serde: Any) -> Callable[[Any], Any] | None:
    """Return how to identify keys: None if equal keys have equal bytes, else by their bytes."""
    if serde.identity:
        return None
    serialize = serde.serialize

    def of(key: Any) -> Any:
        if type(key) is Windowed:
            return serialize(key.key), key.start, key.end
        return serialize(key)

    return of
