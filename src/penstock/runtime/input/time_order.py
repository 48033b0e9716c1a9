"""The order in which epochs take the records of several inputs: by their timestamps, as Kafka Streams does.

While an application catches up, it may have read one input further than another. An epoch then takes only records up to a time
that all have been read to; and if they do not fit into one epoch, the earliest of them. So the rows of a table come before the
later records that are joined with them, however long both topics have existed; and no partition closes the windows of another,
whose records are in the same shard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from penstock import machine
from penstock.epochs.program import Program
from penstock.records import LAST_TIMESTAMP, Partition
from penstock.runtime.input.inputs import Input, InputBehind, Offsets, count
from penstock.runtime.loop.share import Room, take
from penstock.state import RawLayout, StoreKind

BEHIND = 10_000
"""If so many records wait for an epoch, the application has fallen behind, and has to catch up again."""

_FIRST_STEP_MS = 1_000


_ENOUGH = 0.8
"""An epoch of this part of what fits is large enough: every further request for offsets takes milliseconds."""

OffsetsAt = Callable[[Iterable[Partition], int], Mapping[Partition, int | None]]
"""Returns the offset of each partition's first record at or after a time; None if there is none. The brokers find it."""


_TIMED = (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION, StoreKind.VERSIONED, StoreKind.TIMERS)
_TIMED_ROWS = (RawLayout.UNJOINED, RawLayout.WAITING, RawLayout.HELD)


def is_timed(program: Program) -> bool:
    """Whether stores of a program follow the stream time of their shard: what closes, expires, waits or is late depends on it."""
    return any(
        spec.kind in _TIMED or spec.layout in _TIMED_ROWS or spec.ttl_ms is not None
        for name, spec in program.specs.items()
        if name not in program.global_stores
    )


def is_needed(places: Collection[Partition], is_timed: bool) -> bool:
    """Whether inputs have an order of time: several topics always do, partitions of one topic if stores follow their time."""
    return len({topic for topic, _ in places}) > 1 or (is_timed and len(places) > 1)


class TimeOrder:
    """Decides which records of several inputs an epoch takes: the earliest ones. `is_timed` is as in `is_needed`."""

    def __init__(self, offsets_at: OffsetsAt, is_timed: bool) -> None:
        self._offsets_at = offsets_at
        self._is_timed = is_timed
        self._until = machine.now_ms()
        self._step = _FIRST_STEP_MS

    def take(self, offsets: Offsets, read_to: Offsets, waiting: Collection[Partition], room: Room) -> dict[Partition, int]:
        """As `share.take`, but with the earliest records."""
        ends = take(offsets, read_to, waiting, room)
        most = count(offsets, ends)
        bounds = {place: offsets[place] if place in waiting else end for place, end in read_to.items()}
        if not is_needed(offsets, self._is_timed) or most == count(offsets, bounds):
            return ends
        # A later timestamp is an invalid one. It has no place in the order, and must not hide what follows it in its partition.
        found: dict[int, Offsets] = {0: offsets, LAST_TIMESTAMP + 1: bounds}

        def part_taken(until: int) -> float:
            found[until] = self._between(offsets, bounds, until)
            return count(offsets, found[until]) / most

        until = _latest(part_taken, min(self._until + self._step, LAST_TIMESTAMP), self._step)
        self._until, self._step = until, max(_FIRST_STEP_MS, until - self._until)
        left = most - count(offsets, found[until])
        at_once = found.get(until + 1)  # they have the same timestamp, and only some of them fit
        return take(found[until], at_once, (), Room(left, 0)) if left and at_once is not None else dict(found[until])

    def _between(self, offsets: Offsets, bounds: Offsets, until: int) -> Offsets:
        """Return the offset of each partition's first record at or after `until`, between `offsets` and `bounds`."""
        found = self._offsets_at([place for place, bound in bounds.items() if bound > offsets[place]], until)
        reached = {place: bounds[place] if at is None else at for place, at in found.items()}
        return {place: max(offset, min(reached.get(place, offset), bounds[place])) for place, offset in offsets.items()}


class Reader(Input, Protocol):
    """An input that knows the timestamps of the records that it keeps."""

    def latest(self, place: Partition) -> int:
        """Return the highest timestamp that was read from a partition; -1 if nothing was."""

    def read_up_to(self, timestamp_ms: int) -> Offsets:
        """Return how far each partition is read without records after a time."""


class OrderedInput(InputBehind):
    """Several inputs, as far as epochs may take them in the order of time. `ends` returns where their topics end."""

    _reader: Reader

    def __init__(self, reader: Reader, ends: Callable[[], Offsets]) -> None:
        self._reader = reader
        self._find_ends = ends
        self._ends: Offsets | None = None
        self._is_behind = True

    def wait(self, offsets: Offsets, timeout_s: float) -> Offsets:
        """Wait until there are records that an epoch may take."""
        deadline = machine.monotonic() + timeout_s
        known = offsets
        while True:
            found = self._reader.wait(known, max(0.0, deadline - machine.monotonic()))
            reached = self._reached(offsets, found)
            if reached != offsets or machine.monotonic() >= deadline:
                return reached
            known = found

    def _reached(self, offsets: Offsets, found: Offsets) -> Offsets:
        if not self._is_behind and count(offsets, found) < BEHIND:
            return found
        if self._ends is None:
            self._ends = self._find_ends()
        unread = [place for place, end in self._ends.items() if end > found[place]]
        self._is_behind = bool(unread)
        if not unread:
            self._ends = None
            return found
        reached = self._reader.read_up_to(min(map(self._reader.latest, unread)))
        return {place: max(offset, reached[place]) for place, offset in offsets.items()}


def _latest(part_taken: Callable[[int], float], guess: int, step: int) -> int:
    """Return a time until which about as many records are taken as fit; or else the last one at which they fit.

    The search begins at `guess`, and goes on in growing steps until the time is between two of them.
    """
    low, high, at = 0, LAST_TIMESTAMP + 1, guess
    while high - low > 1:
        part = part_taken(at)
        if _ENOUGH <= part <= 1:
            return at
        low, high = (at, high) if part <= 1 else (low, at)
        step *= 4
        at += step if part <= 1 else -step
        if not low < at < high:
            at = (low + high) // 2
    return low
