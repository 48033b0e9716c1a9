"""The changes of a table of time windows in an epoch that is computed in columns: from the records that reach it to what is held.

Every record is added to all windows that contain its time and are still open when it arrives, as in `WindowAggregate`. The
results are held in the store and wait for the flush, so that what follows is done as if records had been walked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.expressions.columns.aggregation import Groups, fold
from penstock.expressions.columns.frames import Frame
from penstock.expressions.columns.steps import Gather
from penstock.expressions.columns.vectors import DoubtError
from penstock.lanes.bound_shard import BoundShard
from penstock.lanes.clocks import ObservedClock
from penstock.lanes.settling import Arrived, before, distinct, headers_at, latest, objects
from penstock.records import Windowed
from penstock.state import MAX_TIME, StoreSpec, TimestampedWindowStore, can_hold_all, hold_all, read_windows
from penstock.timing import TimeWindows

_MOST_UPDATES = 10_000_000
"""The most updates of windows that are computed at once: 24 bytes each, and those of the columns."""

_new = tuple.__new__  # cheaper than Windowed(...)


class WindowTable(NamedTuple):
    """The store of a table of windows, its declaration, and the clock that closes its windows."""

    spec: StoreSpec
    store: TimestampedWindowStore[Any, Any]
    clock: ObservedClock


class WindowChanges(NamedTuple):
    """New entries of a table of windows, as they are held and as they wait for the flush, and the times that it has reached."""

    held: list[tuple[tuple[Any, int], tuple[Any, int]]]
    pending: dict[Any, Any]
    last_start: int
    time: int
    expired: int


class _Updates(NamedTuple):
    """Which window each record is added to: its position among the records, and the window's start, record by record."""

    records: Any
    starts: Any
    expired: int


def window_table(bound: BoundShard, node: str, name: str) -> WindowTable | None:
    """Return the table of windows that a node keeps, if columns can change it now."""
    spec, store, clock = bound.circuit.blueprint.spec(name), bound.stores.store(name), bound.clocks.clock(node)
    is_free = type(store) is TimestampedWindowStore and spec.cached and spec.serdes[0].identity and not bound.stores.pending(name)
    return WindowTable(spec, store, clock) if is_free and isinstance(clock, ObservedClock) else None


def window_changes(gather: Gather, table: WindowTable, frame: Frame, arrived: Arrived) -> WindowChanges:
    """Return the changes of a table of windows by the records that have reached it."""
    assert gather.within is not None
    node, windows, rows = gather.aggregates, gather.within.windows, arrived.rows
    timestamps = arrived.records.column("timestamp").to_numpy()[rows]
    _refuse_extremes(windows, timestamps)
    observed = np.maximum(np.maximum.accumulate(timestamps), table.clock.time)
    updates = _updates(windows, timestamps, observed)
    if not len(updates.starts):
        return WindowChanges([], {}, -1, int(observed[-1]), updates.expired)
    first, last_start = int(updates.starts.min()), int(updates.starts.max())
    if not can_hold_all(table.store, first, last_start):
        raise DoubtError("windows that the store may not keep")
    steps = (last_start - first) // windows.advance_ms + 1
    numbers = arrived.keys.numbers[rows][updates.records] * steps + (updates.starts - first) // windows.advance_ms
    used, groups = distinct(numbers, len(arrived.keys.names) * steps)
    names, keys = arrived.keys.names, arrived.keys.as_objects()
    of_keys, starts = (used // steps).tolist(), (first + used % steps * windows.advance_ms).tolist()
    raw = read_windows(table.store, [names[key] for key in of_keys], starts)
    grouped = Groups(groups, len(used))
    results = objects(node, fold(node, frame.where(updates.records), grouped, before(node, table.spec, raw)))
    times, last = latest(raw, grouped, timestamps[updates.records])
    headers = headers_at(arrived.records.column("headers"), rows[updates.records[last]])
    size, held, pending = windows.size_ms, [], {}
    entries = list(zip([keys[key] for key in of_keys], starts, results, times.tolist(), headers, strict=True))
    for number in np.argsort(last).tolist():
        key, start, value, time, header = entries[number]
        windowed = _new(Windowed, (key, start, start + size))
        held.append(((key, start), (value, time)))
        pending[windowed] = (windowed, value, None, time, header)
    return WindowChanges(held, pending, last_start, int(observed[-1]), updates.expired)


def _refuse_extremes(windows: TimeWindows, timestamps: Any) -> None:
    if timestamps.min() < 0 or timestamps.max() > MAX_TIME - windows.size_ms:
        raise DoubtError("times that are no times of windows")
    if len(timestamps) * (windows.size_ms // windows.advance_ms + 1) > _MOST_UPDATES:
        raise DoubtError("too many windows for the memory")


def _updates(windows: TimeWindows, timestamps: Any, observed: Any) -> _Updates:
    """Return which windows records are added to; `observed` is the time that each of them has brought the clock to."""
    advance = windows.advance_ms
    firsts = np.maximum(timestamps - windows.size_ms + advance, 0) // advance * advance
    counts = timestamps // advance - firsts // advance + 1
    records = np.repeat(np.arange(len(timestamps)), counts)
    places = np.arange(len(records)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = firsts[records] + places * advance
    are_open = starts + windows.size_ms > observed[records] - windows.grace_ms
    if are_open.all():
        return _Updates(records, starts, 0)
    return _Updates(records[are_open], starts[are_open], int(len(starts) - np.count_nonzero(are_open)))


def hold(bound: BoundShard, table: WindowTable, changes: WindowChanges) -> None:
    """Hold changes in the store, and have them sent when the epoch ends."""
    table.clock.observe(changes.time)
    if changes.held:
        hold_all(table.store, changes.held, changes.last_start)
        bound.stores.pending(table.spec.name).update(changes.pending)
