"""The next epoch: when one without records is due, and what its tasks receive."""

from __future__ import annotations

from collections.abc import Mapping

from penstock import machine
from penstock.epochs.program import Epoch, Placement, Program
from penstock.history.progress import Progress
from penstock.records import NO_TIMESTAMP
from penstock.runtime.loop.event_time import EventTime
from penstock.runtime.loop.feedback import Feedback
from penstock.state import Mark

MARK_EVERY_S = 10.0
"""How often lanes receive a mark; a restart reads at most what the changelogs gained since the last one."""

SAMPLE_EVERY_S = 5.0
"""How often an epoch is sampled (nodes timed, stores measured), which costs a few percent of that epoch."""

KEEP_ALIVE_S = 3600.0
"""An application without input commits at least this often: offsets of a group without members expire one by one."""


class Agenda:
    """Decides what the next epoch is. `partitions` are counts by topic; an epoch of up to `small` records runs in one task."""

    def __init__(self, program: Program, event_time: EventTime, partitions: Mapping[str, int], small: int) -> None:
        self._event_time = event_time
        self._partitions = partitions
        self._small = small
        # When something is due by the wall clock, and by the watermark, as the lanes of the last epoch reported. Before the
        # first epoch of a start nothing is known, so that an epoch has to ask the lanes.
        self._due: int | None = 0 if program.waits_for_the_clock or program.has_watermarks else None
        self._event_due: int | None = None
        self._is_hurried = False  # whether a processor requested a commit in the last epoch
        self._sampled_at = 0.0
        self._marked_at = 0.0
        self._committed_at = machine.monotonic()
        self.mark: Mark | None = None
        """The mark that lanes save with the next epoch."""

    @property
    def most_records(self) -> int | None:
        """The maximum number of records in the next epoch; None if only its size limits it."""
        return self._small if self._is_hurried else None

    def add_topics(self, partitions: Mapping[str, int]) -> None:
        """Set the partition counts of new or grown topics."""
        self._partitions = {**self._partitions, **partitions}

    def is_due(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Whether an epoch without records is due."""
        return self._is_awaited(offsets) or machine.monotonic() - self._committed_at > KEEP_ALIVE_S

    def _is_awaited(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Whether the wall clock or the watermark has reached a time that a lane waits for."""
        if self._due is not None and self._due <= machine.now_ms():
            return True
        if self._event_due is None:
            return False
        watermark = self._event_time.advance(offsets)
        return watermark is not None and self._event_due <= watermark

    def next(self, progress: Progress, committed: int) -> Epoch:
        """Return the epoch that follows `progress`; `committed` is the last committed epoch."""
        high_times = tuple(progress.high_times.get(origin, NO_TIMESTAMP) for origin in progress.origins)
        mark, self.mark = self.mark, None
        now = machine.now_ms()
        watermarks = self._event_time.watermarks_of(progress.origins)
        watermark = self._event_time.advance(progress.offsets)
        is_sampled = machine.monotonic() - self._sampled_at > SAMPLE_EVERY_S
        if is_sampled:
            self._sampled_at = machine.monotonic()
        return Epoch(
            progress.epoch + 1,
            progress.epoch,
            now,
            progress.origins,
            high_times,
            self._partitions,
            mark,
            watermark,
            watermarks,
            NO_TIMESTAMP if watermark is None else progress.watermark,
            is_sampled,
            committed=committed,
            placement=Placement(progress.heads),
        )

    def update(self, feedback: Feedback) -> None:
        """Remember what the lanes of the last epoch wait for."""
        self._due, self._event_due = feedback.due, feedback.event_due
        self._is_hurried = feedback.wants_commit

    def committed(self, at: float) -> bool:
        """Note that an epoch was committed at `at`; return whether lanes need a new mark."""
        self._committed_at = at
        if at - self._marked_at <= MARK_EVERY_S:
            return False
        self._marked_at = at
        return True
