"""The next epoch: which records it may take, when one without records is due, what its tasks receive, and the marks they save."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from penstock import machine
from penstock.epochs.program import Epoch, Placement, Program
from penstock.errors import BrokerError, CommitError, StateError
from penstock.history.progress import Progress
from penstock.records import NO_TIMESTAMP, Partition
from penstock.runtime.loop.dispatcher import Offer
from penstock.runtime.loop.event_time import EventTime
from penstock.runtime.loop.feedback import Feedback
from penstock.state import Mark

MARK_EVERY_S = 10.0
"""How often lanes receive a mark; a restart reads at most what the changelogs gained since the last one."""

SAMPLE_EVERY_S = 5.0
"""How often an epoch is sampled (nodes timed, stores measured), which costs a few percent of that epoch."""

KEEP_ALIVE_S = 3600.0
"""An application without input commits at least this often: offsets of a group without members expire one by one."""


class Marks:
    """Makes marks; `ends` returns where the changelogs end now, by `topic/partition`, and `topic_ids` are their ids."""

    def __init__(self, ends: Callable[[], Mapping[str, int]], topic_ids: Mapping[str, str]) -> None:
        self._ends = ends
        self._topic_ids = dict(topic_ids)

    def new(self, epoch: int) -> Mark | None:
        """Return a mark of a committed epoch, or None if that fails: then a restart only reads more."""
        try:
            return Mark(epoch, machine.now_ms(), dict(self._ends()), self._topic_ids)
        except (BrokerError, CommitError) as error:
            _log.warning("no mark was written, so that a restart would read more of the changelogs: %s", error)
            return None


class Agenda:
    """Decides what the next epoch is. `partitions` are counts by topic; an epoch of up to `small` records runs in one task."""

    def __init__(self, program: Program, event_time: EventTime, partitions: Mapping[str, int], small: int, marks: Marks) -> None:
        self._event_time = event_time
        self._partitions = partitions
        self._small = small
        self._marks = marks
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

    def committed(self, at: float, epoch: int) -> None:
        """Note that an epoch was committed at `at`; now and then, lanes save a new mark with the next one."""
        self._committed_at = at
        if at - self._marked_at > MARK_EVERY_S:
            self._marked_at = at
            self.mark = self._marks.new(epoch)


_log = logging.getLogger(__name__)


class Backlog:
    """Tracks the records that epochs can take. `limits` are the offsets at which a bounded run ends."""

    def __init__(self, offsets: Mapping[Partition, int], limits: Mapping[Partition, int]) -> None:
        self._limits = limits
        self._read_to = dict(offsets)
        self.left: frozenset[Partition] = frozenset()
        """The partitions that have been read further than epochs have taken."""

    def is_at_its_end(self, offsets: Mapping[Partition, int]) -> bool:
        """Whether a bounded run has reached all of its limits."""
        return bool(self._limits) and all(offsets[partition] >= limit for partition, limit in self._limits.items())

    def begin_anew(self, offsets: Mapping[Partition, int]) -> None:
        """Start over with another input, which begins at these offsets."""
        self._read_to, self.left = dict(offsets), frozenset()

    def add(self, offsets: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
        """Add what was read, up to `ends`."""
        begins = self._read_to
        if any(begins[place] != offset and place not in self.left for place, offset in offsets.items()):
            raise StateError("The input does not continue from the committed offsets. Start again.")
        self._read_to = {place: max(offsets[place], min(end, self._limits.get(place, end))) for place, end in ends.items()}
        self.left = frozenset(place for place, end in self._read_to.items() if end > offsets[place])

    def offer(self, offsets: Mapping[Partition, int], waiting: frozenset[Partition], most: int | None) -> Offer:
        """Return what an epoch may take."""
        return Offer(offsets, self._read_to, waiting, most)

    def taken_to(self, offsets: Mapping[Partition, int]) -> None:
        """Remove what a committed epoch has taken, up to these offsets."""
        self.left = frozenset(place for place in self.left if self._read_to[place] > offsets[place])
