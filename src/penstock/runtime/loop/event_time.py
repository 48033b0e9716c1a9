"""The progress of event time in a running application, and which partitions are so far ahead that they have to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from penstock import machine
from penstock.epochs.program import Program
from penstock.history.progress import Progress
from penstock.records import NO_TIMESTAMP, Partition
from penstock.timing import WatermarkTracker

ENDS_EVERY_S = 1.0
"""How often the end offsets of the inputs are requested while one of them is silent."""


class EventTime:
    """The watermarks of an application, if a source declares one. `input_ends` returns where the inputs end."""

    def __init__(self, program: Program, start: Progress, input_ends: Callable[[], Mapping[Partition, int]]) -> None:
        self._program = program
        self._input_ends = input_ends
        self._tracker = _tracker(program, start)
        self._asked_at = 0.0
        self._known_ends: Mapping[Partition, int] = {}

    def watch(self, new: Iterable[Partition], progress: Progress) -> None:
        """Track the watermarks of new partitions, which `progress` already contains."""
        if self._tracker is None:
            self._tracker = _tracker(self._program, progress)
            return
        for place in sorted(new):
            strategy = self._program.watermark_of(place[0])
            if strategy is not None:
                self._tracker.add(place, strategy, at=_now_ms())

    def update(self, watermarks: Iterable[tuple[Partition, int]]) -> None:
        """Take the watermarks that partitions have reported."""
        for place, watermark in watermarks:
            assert self._tracker is not None
            self._tracker.heard(place, watermark, at=_now_ms())

    def advance(self, offsets: Mapping[Partition, int]) -> int | None:
        """Return the application's current watermark, None without one. A partition is idle only if it is read to its end."""
        if self._tracker is None:
            return None
        now = _now_ms()
        if any(self._tracker.is_idle(partition, at=now) for partition in self._tracker.watermarks):
            self._tracker.lag(self._behind(offsets), at=now)
        return self._tracker.advance(at=now)

    def ahead(self, available: Iterable[Partition]) -> frozenset[Partition]:
        """Return which of the partitions with records have to wait for the others."""
        return frozenset() if self._tracker is None else self._tracker.ahead(frozenset(available))

    def ahead_of_inputs(self, available: frozenset[Partition], offsets: Mapping[Partition, int]) -> frozenset[Partition]:
        """As `ahead`, but partitions with unread records count as well."""
        return frozenset() if self._tracker is None else self.ahead(self._behind(offsets) | available)

    def watermarks_of(self, origins: Iterable[Partition]) -> tuple[int, ...]:
        """Return the watermark of each partition; empty if no source declares one."""
        if self._tracker is None:
            return ()
        return tuple(self._tracker.watermarks.get(origin, NO_TIMESTAMP) for origin in origins)

    def with_watermarks(self, progress: Progress) -> Progress:
        """Return the progress with the current watermarks."""
        if self._tracker is None:
            return progress
        return replace(progress, watermarks=dict(self._tracker.watermarks), watermark=self._tracker.reached)

    def idle(self) -> frozenset[Partition]:
        """Return the idle partitions, which the watermark does not wait for."""
        tracker, now = self._tracker, _now_ms()
        return frozenset() if tracker is None else frozenset(each for each in tracker.watermarks if tracker.is_idle(each, at=now))

    def _behind(self, offsets: Mapping[Partition, int]) -> frozenset[Partition]:
        """Return the partitions that are not read to their end, as of a moment ago."""
        if machine.monotonic() - self._asked_at > ENDS_EVERY_S:
            self._asked_at, self._known_ends = machine.monotonic(), self._input_ends()
        return frozenset(place for place, end in self._known_ends.items() if end > offsets.get(place, end))


def _tracker(program: Program, start: Progress) -> WatermarkTracker[Partition] | None:
    """Return the tracker of the partitions' watermarks; None if no source declares one."""
    strategies = {place: strategy for place in start.offsets if (strategy := program.watermark_of(place[0])) is not None}
    if not strategies:
        return None
    return WatermarkTracker(strategies, started_at=_now_ms(), known=start.watermarks, reached=start.watermark)


def _now_ms() -> int:
    return machine.now_ms()
