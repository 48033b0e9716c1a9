"""Runs the epochs of an application, one after the other: each is one job and one commit, with records or by the clock.

The job of an epoch runs while the one before it is being committed. `backlog` and `event_time` decide which records an epoch
takes, `agenda` what its tasks receive, `publication` how it is committed; `journal` reports it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from penstock import faults, machine
from penstock.epochs.program import Epoch, Program
from penstock.history.progress import Progress
from penstock.observation import Recorder
from penstock.records import Partition
from penstock.runtime.instance import Instance
from penstock.runtime.loop.agenda import Agenda, Backlog, Marks
from penstock.runtime.loop.commits import Commits
from penstock.runtime.loop.dispatcher import Dispatcher, Jobs, Take, nothing
from penstock.runtime.loop.epoch_size import TARGET_S, EpochSize
from penstock.runtime.loop.event_time import EventTime
from penstock.runtime.loop.feedback import Feedback
from penstock.runtime.loop.giving_up import GivingUp
from penstock.runtime.loop.journal import Journal
from penstock.runtime.loop.publication import Publication
from penstock.runtime.loop.share import take

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StartingPoint:
    """Where the epochs of a start continue.

    `partitions` are counts by topic, `changelog_ids` the ids of the changelogs. `first_rows` go with the first commit.
    """

    progress: Progress
    partitions: Mapping[str, int]
    changelog_ids: Mapping[str, str]
    first_rows: pa.Table | None = None


@dataclass(frozen=True)
class Bounds:
    """How much epochs take: one of up to `small` records runs in a single task; `limits` are offsets at which the run ends.

    Up to `in_flight` epochs may not be committed yet when another begins. `take` decides which records an epoch takes.
    """

    small: int
    size: EpochSize
    limits: Mapping[Partition, int] = field(default_factory=dict)
    in_flight: int = 0
    take: Take = take

    @classmethod
    def of(cls, instance: Instance, limits: Mapping[Partition, int], take: Take) -> Bounds:
        """Return the bounds that the settings of an instance give."""
        config = instance.config
        target_s = min(TARGET_S, config.epoch_timeout_ms / 4_000, config.transaction_timeout_ms / 4_000)
        size = EpochSize(config.max_epoch_records, instance.most_epoch_bytes, target_s)
        in_flight = 0 if config.executors_write else config.epochs_in_flight  # a transactional id has one transaction at a time
        return cls(config.small_epoch_records, size, limits, in_flight, take)


@dataclass(frozen=True)
class Ends:
    """Functions that return where topics end now: changelogs by `topic/partition`, and the inputs."""

    changelogs: Callable[[], Mapping[str, int]]
    inputs: Callable[[], Mapping[Partition, int]] = dict


@dataclass(frozen=True)
class Contributions:
    """Calls that each epoch makes, in this order: before it begins, for more rows, and after the commit."""

    before_epoch: Callable[[], None] = lambda: None
    other_rows: Callable[[], Sequence[pa.Table]] = tuple
    after_commit: Callable[[int], None] = lambda epoch: None
    restore: Callable[[Progress, int], None] | None = None
    """Restores all lanes to the progress, for tasks of an attempt and later ones; None if lanes cannot be lost."""
    must_move: Callable[[], bool] = lambda: False
    """Whether lanes have to move to other hosts, even if there is no input: they may be queried."""


@dataclass(frozen=True)
class Done:
    """An epoch whose job is done, ready to be committed: its rows, and the progress that it makes."""

    epoch: Epoch
    began: float
    tables: Sequence[pa.Table]
    feedback: Feedback
    progress: Progress
    records: int
    idle: frozenset[Partition]


@dataclass
class Hold:
    """Why no epoch begins, if none does; each reason by itself, because an application may be interrupted during a pause."""

    is_stopping: bool = False
    is_interrupted: bool = False
    is_paused: bool = False


class Epochs:
    """Runs epochs one after the other, whether the input or the clock requests them."""

    def __init__(
        self,
        program: Program,
        jobs: Jobs,
        publication: Publication,
        start: StartingPoint,
        bounds: Bounds,
        ends: Ends,
        others: Contributions,
        recorder: Recorder,
    ) -> None:
        self.progress: Progress = start.progress
        """The committed progress."""
        self.taken: Progress = start.progress
        """The progress of the last epoch whose job is done; it may not be committed yet."""
        self._commits = Commits(f"penstock-{program.application_id}-commits", bounds.in_flight)
        give_up = GivingUp(program, jobs)
        self._dispatcher = Dispatcher(
            jobs,
            bounds.size,
            give_up,
            small=bounds.small,
            lanes=program.lanes,
            on_retry=self._begin_again,
            take=bounds.take,
            restore=None if others.restore is None else self._restore_for,
        )
        self._event_time = EventTime(program, start.progress, ends.inputs)
        self._backlog = Backlog(start.progress.offsets, bounds.limits)
        marks = Marks(ends.changelogs, start.changelog_ids)
        self._agenda = Agenda(program, self._event_time, start.partitions, bounds.small, marks)
        self._publication = publication
        self._journal = Journal(program.topics, recorder)
        self._others = others
        self._first_rows = start.first_rows
        self._lock = machine.lock()
        self._began = machine.monotonic()
        self._hold = Hold()
        self._failure: BaseException | None = None
        self._journal.moved(self.progress, self._event_time.idle())

    @property
    def is_done(self) -> bool:
        """Whether a bounded run has reached all of its limits."""
        return self._backlog.is_at_its_end(self.progress.offsets)

    def stop(self) -> None:
        """Finish the current epoch, and run no other; raises if its commit fails."""
        self._hold.is_stopping = True
        with self._lock:
            self._commits.wait()

    def close(self) -> None:
        """End the thread that commits."""
        self._commits.close()

    @property
    def is_idle(self) -> bool:
        """Whether no epoch runs, and all are committed."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._failure is None and self._commits.is_idle and self.taken == self.progress
        finally:
            self._lock.release()

    @property
    def _may_begin(self) -> bool:
        hold = self._hold
        return not (hold.is_stopping or hold.is_interrupted or hold.is_paused)

    @property
    def is_paused(self) -> bool:
        """Whether the application is paused: no epoch begins until it is resumed. An interruption is something else."""
        return self._hold.is_paused

    @is_paused.setter
    def is_paused(self, is_paused: bool) -> None:
        self._hold.is_paused = is_paused

    def interrupt(self) -> None:
        """Finish the current epoch, and run no other until `continue_from`; what is read in the meantime is ignored."""
        self._hold.is_interrupted = True
        with self._lock, suppress(Exception):  # it is forgotten by `continue_from`
            self._commits.wait()

    def continue_from(
        self,
        begins: Mapping[Partition, int],
        partitions: Mapping[str, int] | None = None,
        topic_ids: Mapping[str, str] | None = None,
    ) -> Mapping[Partition, int]:
        """Continue from `begins`, and from the progress for all other partitions; return the offsets to read from.

        New partitions in `begins` are read from now on; `partitions` and `topic_ids` are the counts and ids of their topics. An
        epoch that failed before the interruption is forgotten: nothing of it is committed, and lanes roll it back.
        """
        with self._lock:
            if self._failure is not None or self.taken != self.progress:
                self._commits.forget_failure()
                self._dispatcher.roll_back(self._agenda.next(self.progress, self.progress.epoch))
            new = begins.keys() - self.progress.offsets.keys()
            self.progress = self.taken = replace(self.progress, offsets={**self.progress.offsets, **begins})
            self._agenda.add_topics(partitions or {})
            self._publication.continue_from(begins, topic_ids or {})
            self._backlog.begin_anew(self.progress.offsets)
            self._event_time.watch(new, self.progress)
            self._journal.moved(self.progress, self._event_time.idle())
            self._failure, self._hold.is_interrupted = None, False
            return self.progress.offsets

    def on_input(self, ends: Mapping[Partition, int]) -> None:
        """Run as many epochs as needed for what was read, up to `ends`."""
        with self._lock:
            if not self._may_begin or self.is_done:
                return
            try:
                self._run(ends)
            except BaseException as error:
                self._failure = error
                self._commits.wait()  # the epochs before it are committed; if one of those fails, that is the first error
                raise

    def _run(self, ends: Mapping[Partition, int]) -> None:
        self._backlog.add(self.taken.offsets, ends)
        self._take(self._event_time.ahead(self._backlog.left))
        while self._may_begin and self._take_left():
            pass

    def _take(self, waiting: frozenset[Partition]) -> None:
        """Run an epoch of the backlog, without the partitions that are `waiting`."""
        given = self._backlog.offer(self.taken.offsets, waiting, self._agenda.most_records)
        self._commit(*self._dispatcher.run(self._begin(), given))
        self._backlog.taken_to(self.taken.offsets)

    def _take_left(self) -> bool:
        """Run an epoch of what earlier ones left, unless all of it has to wait; return whether one ran."""
        left = self._backlog.left
        if not left:
            return False
        waiting = self._event_time.ahead_of_inputs(left, self.taken.offsets)
        if waiting >= left:
            return False
        self._take(waiting)
        return True

    def tick(self) -> None:
        """Run an epoch without records, if one is due."""
        with self._lock:
            self._raise_failure()
            if not self._may_begin or self._take_left():
                return
            if not (self._agenda.is_due(self.taken.offsets) or self._others.must_move()):
                return
            self._commit(*self._dispatcher.run(self._begin(), nothing(self.taken.offsets)))

    def while_idle(self, call: Callable[[], None]) -> None:
        """Call `call` unless an epoch is running: it must not come between the steps of a commit."""
        if self._lock.acquire(blocking=False):
            try:
                self._raise_failure()
                if self._commits.is_idle:
                    call()
            finally:
                self._lock.release()

    def _raise_failure(self) -> None:
        """Raise the error of the failed epoch: what fails next would only be a consequence of it."""
        if self._failure is not None:
            raise self._failure
        if self._commits.is_idle:
            self._commits.wait()

    def _restore_for(self, attempt: int) -> Epoch:
        """Restore lanes to the committed progress, for tasks of this attempt; return the epoch that follows it, begun anew."""
        self._commits.wait()
        assert self._others.restore is not None
        self._others.restore(self.progress, attempt)
        return self._agenda.next(self.progress, self.progress.epoch)

    def _begin(self) -> Epoch:
        """Begin the next epoch."""
        self._began = machine.monotonic()
        number = self.taken.epoch + 1
        self._journal.epoch_begins(number)
        self._others.before_epoch()
        epoch = self._agenda.next(self.taken, self.progress.epoch)
        self._journal.job_begins(number)
        faults.point("epoch.before_job")
        return epoch

    def _begin_again(self, epoch: Epoch) -> None:
        """Begin the same epoch again, with its full time."""
        self._began = machine.monotonic()
        self._journal.epoch_begins_again(epoch.number)

    def _commit(self, epoch: Epoch, table: pa.Table, ends: Mapping[Partition, int]) -> None:
        """Let an epoch be committed after those before it, and wait until no more than `in_flight` are not."""
        faults.point("epoch.after_job")
        self._journal.job_ended(epoch.number)
        tables = [table, *self._others.other_rows()]
        feedback = Feedback.found_in(tables)
        self._agenda.update(feedback)
        before = self.taken
        self._event_time.update(feedback.watermarks(before))
        heads = {**before.heads, **feedback.heads}
        reached = Progress(epoch.number, dict(ends), feedback.high_times(before), heads=heads)
        progress = self._event_time.with_watermarks(reached)
        records = sum(progress.offsets[place] - before.offsets[place] for place in before.origins)
        done = Done(epoch, self._began, tables, feedback, progress, records, self._event_time.idle())
        self.taken = progress
        self._commits.add(partial(self._publish, done))
        self._commits.keep_up()

    def _publish(self, done: Done) -> None:
        """Commit an epoch; in the thread of commits."""
        self._journal.check_begins()
        self._journal.log_dropped(done.feedback)
        first = [] if self._first_rows is None else self._first_rows.to_batches()
        published = self._publication.publish(done.progress, done.tables, first)
        self._first_rows = None
        self.progress = done.progress
        self._others.after_commit(done.epoch.number)
        self._journal.moved(done.progress, done.idle)
        self._journal.epoch_committed(done.epoch, done.records, published, done.feedback)
        committed_at = machine.monotonic()
        if done.records:
            self._dispatcher.went_well(done.records, committed_at - done.began)
        self._agenda.committed(committed_at, done.epoch.number)
