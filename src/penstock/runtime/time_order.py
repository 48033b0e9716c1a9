"""The order in which epochs take the records of several topics: by their timestamps, as Kafka Streams does.

While an application catches up, it may have read one topic further than another. An epoch then takes only records up to a time
that all topics have been read to; and if they do not fit into one epoch, the earliest of them. So the rows of a table come before
the later records that are joined with them, however long both topics have existed. The brokers find offsets by time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from penstock.records import LAST_TIMESTAMP, Partition
from penstock.runtime.inputs import Input, Offsets
from penstock.runtime.share import Room, take

BEHIND = 10_000
"""If so many records wait for an epoch, the application has fallen behind, and has to catch up again."""

_FIRST_STEP_MS = 1_000


class Log(Protocol):
    """The source topics, as the brokers know them."""

    def end_offsets(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return where each partition ends."""

    def offsets_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> Mapping[Partition, int | None]:
        """Return the offset of each partition's first record at or after a time; None if there is none."""


class TimeOrder:
    """Finds what epochs may take of several topics. An application with one topic needs no order between topics."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._read_until = self._taken_until = int(time.time() * 1000)

    def applied_to(self, source: Input, offsets: Offsets) -> Input:
        """Return the input that is opened at `offsets`, in the order of time if it has several topics."""
        return OrderedInput(source, self._log, self) if len({topic for topic, _ in offsets}) > 1 else source

    def reached(self, offsets: Offsets, read_to: Offsets, ends: Offsets) -> Offsets:
        """Return how far epochs may go if partitions are read up to `read_to` and go on to `ends`."""
        unread = [place for place, end in ends.items() if end > read_to.get(place, end)]
        if not unread:
            return read_to

        def is_read(until: int) -> bool:
            found = self._log.offsets_at(unread, until)
            return all((offset := found[place]) is not None and offset <= read_to[place] for place in unread)

        self._read_until = _latest(is_read, self._read_until)
        return self._offsets(offsets, read_to, self._read_until)

    def take(self, offsets: Offsets, read_to: Offsets, waiting: Collection[Partition], room: Room) -> dict[Partition, int]:
        """As `share.take`, but with the earliest records."""
        ends = take(offsets, read_to, waiting, room)
        most = _count(offsets, ends)
        bounds = {place: offsets[place] if place in waiting else end for place, end in read_to.items()}
        if len({topic for topic, _ in offsets}) == 1 or most == _count(offsets, bounds):
            return ends
        fits: dict[int, Offsets] = {}

        def does_fit(until: int) -> bool:
            fits[until] = self._offsets(offsets, bounds, until)
            return _count(offsets, fits[until]) <= most

        until = self._taken_until = _latest(does_fit, self._taken_until)
        earlier = fits.get(until, offsets)
        left = most - _count(offsets, earlier)
        return take(earlier, fits[until + 1], (), Room(left, 0)) if left else dict(earlier)

    def _offsets(self, offsets: Offsets, bounds: Offsets, until: int) -> Offsets:
        """Return the offset of each partition's first record at or after `until`, between `offsets` and `bounds`."""
        found = self._log.offsets_at([place for place, bound in bounds.items() if bound > offsets[place]], until)
        reached = {place: bounds[place] if at is None else at for place, at in found.items()}
        return {place: max(offset, min(reached.get(place, offset), bounds[place])) for place, offset in offsets.items()}


class OrderedInput:
    """An input of several topics, as far as epochs may take it in the order of time."""

    def __init__(self, source: Input, log: Log, order: TimeOrder) -> None:
        self._source = source
        self._log = log
        self._order = order
        self._ends: Offsets | None = None
        self._is_behind = True

    def wait(self, offsets: Offsets, timeout_s: float) -> Offsets:
        """Wait until there are records that an epoch may take."""
        deadline = time.monotonic() + timeout_s
        known = offsets
        while True:
            found = self._source.wait(known, max(0.0, deadline - time.monotonic()))
            reached = self._reached(offsets, found)
            if reached != offsets or time.monotonic() >= deadline:
                return reached
            known = found

    def _reached(self, offsets: Offsets, found: Offsets) -> Offsets:
        if not self._is_behind and _count(offsets, found) < BEHIND:
            return found
        if self._ends is None:
            self._ends = self._log.end_offsets(offsets)
        self._is_behind = any(end > found[place] for place, end in self._ends.items())
        if self._is_behind:
            return self._order.reached(offsets, found, self._ends)
        self._ends = None
        return found

    def release(self, offsets: Offsets) -> None:
        """Forget what is before these offsets."""
        self._source.release(offsets)

    def fill(self) -> None:
        """Prepare what was received in the meantime."""
        self._source.fill()

    def close(self) -> None:
        """Stop reading."""
        self._source.close()


def _latest(holds: Callable[[int], bool], guess: int) -> int:
    """Return the latest time for which `holds`; it holds for all earlier ones, and for 0. The search begins at `guess`."""
    low, high, step = 0, LAST_TIMESTAMP + 1, _FIRST_STEP_MS
    at = guess
    while low < at < high:  # first with growing steps, until the time is between two of them
        if holds(at):
            low, at = at, at + step
        else:
            high, at = at, at - step
        step *= 4
        if low and high <= LAST_TIMESTAMP:
            break
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _count(offsets: Offsets, ends: Offsets) -> int:
    return sum(ends[place] - offset for place, offset in offsets.items())
