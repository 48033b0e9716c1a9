"""Aggregation by sliding windows, as in `KStreamSlidingWindowAggregate`.

A record at `t` ends one window, `[t - difference, t]`, and opens another directly after itself, `[t + 1, t + 1 +
difference]`, which exists only once it contains a record. So new windows are created from the content of existing ones;
a window's timestamp is that of its latest record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from penstock.errors import FAILURES
from penstock.operators.drops import EXPIRED_WINDOW, NULL_KEY_OR_VALUE
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
from penstock.records import NO_TIMESTAMP, Change, Headers, Process, ValueAndTimestamp, Windowed
from penstock.timing import SlidingWindows


@dataclass(frozen=True, slots=True)
class SlidingAggregate(TableOperator):
    """One aggregate per key and distinct set of records at most the time difference apart."""

    lineage: ClassVar[Lineage] = Lineage.GATHERS
    retries_what_it_reads: ClassVar[bool] = True
    windows_include_end: ClassVar[bool] = True

    store: str
    windows: SlidingWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    emit_on_close: bool
    send_old_values: bool

    def bind(self, host: Host, forward: Process) -> Process:
        """The node's `process`: all windows are computed before any is written."""
        difference, grace = self.windows.time_difference_ms, self.windows.grace_ms
        observe, dropped, failed = host.time.clock(host.node).observe, host.dropped, host.failed
        kept = updates(host, self.store, forward, self.send_old_values, self.emit_on_close)
        attempt, emit, put = host.retried(_Windows(self, host, kept).updated), kept.emit, host.store(self.store).put
        emit_closed = _emit_closed(host, self.store, forward, difference, grace) if self.emit_on_close else None

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                dropped(NULL_KEY_OR_VALUE)
                return
            try:
                close_time = observe(timestamp) - grace
                if timestamp + difference < close_time:
                    dropped(EXPIRED_WINDOW)
                    return
                for update in attempt(_Arrival(key, value, timestamp, close_time)):
                    if update is None:
                        dropped(EXPIRED_WINDOW)
                        continue
                    start, new, old, latest = update
                    put(key, new, start, latest)
                    if emit is not None:
                        emit(Windowed(key, start, start + difference), Change(new, old), latest, headers, timestamp)
                # As in Kafka Streams, a record whose window would start before time 0 emits no closed windows.
                if emit_closed is not None and timestamp >= difference:
                    emit_closed(close_time, headers)
            except FAILURES as error:
                failed(error, key)

        return process

    def view(self, host: Host) -> View:
        """Reads by `Windowed` key."""
        return window_view(host, self.store)


class _Update(NamedTuple):
    """What a record does to the window `[start, start + difference]`: its new and its old value, and the time of both."""

    start: int
    new: Any
    old: Any
    timestamp: int


class _Arrival(NamedTuple):
    """A record, and the time before which windows are closed when it arrives."""

    key: Any
    value: Any
    timestamp: int
    close_time: int


class _Windows:
    """The windows of a bound node: finds those that contain a record and computes those that it causes, without writing any."""

    __slots__ = (
        "_aggregate",
        "_cached",
        "_difference",
        "_fetch",
        "_fetch_entry",
        "_hold",
        "_initialize",
        "_reads_old",
        "_updates",
        "_with_initial",
        "_with_old",
    )

    def __init__(self, operator: SlidingAggregate, host: Host, kept: Updates) -> None:
        store = host.store(operator.store)
        self._difference = operator.windows.time_difference_ms
        self._initialize, self._aggregate = operator.initializer, operator.aggregator
        self._fetch, self._fetch_entry = store.entries.fetch_range, store.fetch_entry
        self._hold = by_value(host.spec(operator.store))
        self._reads_old = kept.emit is not None and own_old_value(host, operator.store, operator.send_old_values)
        self._cached, self._with_old, self._with_initial = kept.cached, kept.with_old, kept.with_initial
        self._updates: list[_Update | None] = []

    def updated(self, record: _Arrival) -> list[_Update | None]:
        """Return what a record does to windows, in the order in which that is written; None for a window that is closed."""
        self._updates = []
        if record.timestamp < self._difference:
            self._add_early(record)
        else:
            self._add(record)
        return self._updates

    def _add(self, record: _Arrival) -> None:
        """Add a record whose own window starts at time 0 or later."""
        difference, timestamp = self._difference, record.timestamp
        found: list[tuple[int, ValueAndTimestamp[Any]]] = []
        before: ValueAndTimestamp[Any] | None = None  # the latest window that ends before the record
        right: tuple[int, int] | None = None  # a window that ends after the record and so contains later records: start, time
        previous: int | None = None  # the record before this one, if its right window may be missing
        has_left = has_right = False
        for start, entry in self._fetch(record.key, max(0, timestamp - 2 * difference), timestamp + 1, reverse=True):
            end = start + difference
            if start > timestamp:
                has_right = True
            elif end > timestamp:
                if right is None:
                    right = start, entry.timestamp
                found.append((start, entry))
            elif end == timestamp:
                has_left = True
                found.append((start, entry))
                if entry.timestamp >= timestamp:
                    break
                previous = entry.timestamp
            else:
                before, previous = entry, entry.timestamp
                break
        for start, entry in found:
            self._update(record, start, entry)
        if has_left and previous is None:
            return  # an earlier record with this timestamp has created all its windows
        if previous is not None and previous + 1 + difference >= timestamp:
            self._create_previous_right(record, previous + 1, found)
        if not has_left:
            reaches_back = before is not None and timestamp - difference <= before.timestamp
            aggregated = before.value if before is not None and reaches_back else self._initialize()
            self._create(record, timestamp - difference, aggregated)
        if not has_right:
            self._create_right(record, right)

    def _add_early(self, record: _Arrival) -> None:
        """Add a record whose own window would start before time 0: all of these share `[0, difference]`."""
        timestamp = record.timestamp
        found: list[tuple[int, ValueAndTimestamp[Any]]] = []
        shared: ValueAndTimestamp[Any] | None = None
        right: tuple[int, int] | None = None
        has_right = False
        for start, entry in self._fetch(record.key, 0, timestamp + 1):
            if start == 0:
                shared = entry
            elif start <= timestamp:
                right = start, entry.timestamp
                found.append((start, entry))
            else:
                has_right = True
        for start, entry in found:
            self._update(record, start, entry)
        if not has_right:
            # With no window in between, the shared one holds either only later records or only earlier ones.
            self._create_right(record, (0, shared.timestamp) if right is None and shared is not None else right)
        if shared is not None and shared.timestamp < timestamp:
            self._create_previous_right(record, shared.timestamp + 1, found)
        if shared is None:
            self._create(record, 0, self._initialize())
        else:
            self._update(record, 0, shared)

    def _update(self, record: _Arrival, start: int, entry: ValueAndTimestamp[Any]) -> None:
        aggregated, latest = entry
        old = self._fetch_entry(record.key, start)[0] if self._reads_old else aggregated if self._with_old else None
        self._add_to(record, start, aggregated, max(record.timestamp, latest), old)

    def _create(self, record: _Arrival, start: int, aggregated: Any) -> None:
        old = aggregated if self._with_initial else None
        self._add_to(record, start, aggregated, record.timestamp, old)

    def _create_previous_right(self, record: _Arrival, start: int, found: list[tuple[int, ValueAndTimestamp[Any]]]) -> None:
        """Create the window that opens after the previous record, now that a record is in it."""
        if all(start != known for known, _ in found):
            self._create(record, start, self._initialize())

    def _create_right(self, record: _Arrival, right: tuple[int, int] | None) -> None:
        """Create the window that opens after the record, if there are later records: it gets the aggregate of `right`."""
        if right is None or right[1] <= record.timestamp:
            return
        start, latest = right
        before = self._fetch_entry(record.key, start)[0]  # again, as an aggregator may have changed what was found
        self._updates.append(_Update(record.timestamp + 1, self._hold(before), None, latest))

    def _add_to(self, record: _Arrival, start: int, aggregated: Any, latest: int, old: Any) -> None:
        if start + self._difference < record.close_time:
            self._updates.append(None)
            return
        new = self._hold(self._aggregate(record.key, record.value, aggregated))
        if not self._cached or new is not None or old is not None:
            # A cache drops the deletion of a missing entry; the store does not see its time.
            self._updates.append(_Update(start, new, old, latest))


def _emit_closed(host: Host, store: str, forward: Process, difference: int, grace: int) -> EmitClosed:
    """Return what emits closed windows; a sliding window may end at any time."""
    closing = Closing(_closed_since(difference), lambda last: max(last, difference) + 1, difference + 1, grace)
    return closed_windows(host, store, forward, closing)


def _closed_since(difference: int) -> Bounds:
    """Return the starts to read: a window `[start, end]` closes when the close time is past its end."""

    def bounds(last: int, close_time: int) -> tuple[int, int] | None:
        upper = close_time - difference - 1
        if upper < 0:
            return None
        return (0 if last == NO_TIMESTAMP else max(0, last - difference)), upper

    return bounds
