"""The epochs of a running application: each is one job and one commit, one after the other, with data or by the clock."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import faults
from penstock.barrier import Barrier, CommitMetadata, Phase, SourceOffset
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import Control, Kind, LaneReport, decode_control, reports_of
from penstock.errors import BrokerError, CommitError, StateError
from penstock.observing import CHOSEN, DEAD_LETTERS, PartitionReport, Recorder
from penstock.records import NO_TIMESTAMP
from penstock.running.fitting import Fitting, Input, Jobs
from penstock.running.giving_up import GivingUp
from penstock.running.sizing import Sizing
from penstock.running.taking import Partition
from penstock.state import Mark
from penstock.timing import WatermarkTracker

_log = logging.getLogger(__name__)

BEFORE, JOB, CHECK = "before", "job", "check"
"""The phases of an epoch in front of those of the barrier: global tables are read on, the job runs, its rows are looked at."""

AT_THE_BARRIER = {Phase.BEGUN: "produce", Phase.PRODUCED: "offsets", Phase.COMMITTING: "commit", Phase.COMMITTED: "after"}
"""What begins when the barrier has reached a phase."""

MARK_EVERY_S = 10.0
"""How often lanes are told how far the changelogs reach, which is what a restart has to read at most."""

ENDS_EVERY_S = 1.0
"""How often the ends of inputs are asked for while one of them is silent."""

SAMPLE_EVERY_S = 5.0
"""How often an epoch has its nodes watched and its stores measured: that costs a few percent of that epoch."""

KEEP_ALIVE_S = 3600.0
"""An application without input commits at least this often: offsets of a group without members expire one by one."""


def told_of_phases(recorder: Recorder) -> Callable[[Phase, float], None]:
    """How a barrier tells the recorder what it is about."""

    def on_phase(phase: Phase, _: float) -> None:
        if phase in AT_THE_BARRIER:
            recorder.phase_begins(AT_THE_BARRIER[phase])

    return on_phase


@dataclass(frozen=True)
class Progress:
    """How far an application has come: the epoch that is committed, and each source partition's offset and high time.

    `watermarks` are what partitions have told whose source has a strategy, `watermark` is the application's.
    """

    epoch: int
    offsets: Mapping[Partition, int]
    high_times: Mapping[Partition, int]
    watermarks: Mapping[Partition, int] = field(default_factory=dict)
    watermark: int = NO_TIMESTAMP


class Epochs:
    """Runs epochs strictly one after the other, whoever asks: Spark's stream, or the clock."""

    def __init__(
        self,
        program: Program,
        jobs: Jobs,
        barrier: Barrier,
        start: Progress,
        *,
        small: int,
        sizing: Sizing,
        partitions: Mapping[str, int],
        topic_ids: Mapping[str, str],
        changelog_ends: Callable[[], Mapping[str, int]],
        before_epoch: Callable[[], None] = lambda: None,
        other_rows: Callable[[], Sequence[pa.Table]] = tuple,
        limits: Mapping[Partition, int] | None = None,
        first_rows: pa.Table | None = None,
        check: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows,
        input_ends: Callable[[], Mapping[Partition, int]] = dict,
        recorder: Recorder | None = None,
        after_commit: Callable[[int], None] = lambda epoch: None,
    ) -> None:
        self.progress = start
        self._program = program
        self._barrier = barrier
        self._small = small
        self._sizing = sizing
        give_up = GivingUp(program, jobs)
        self._fitting = Fitting(jobs, sizing, give_up, small=small, lanes=program.lanes, on_retry=self._begin_again)
        self._partitions = partitions
        self._topic_ids = topic_ids
        self._changelog_ends = changelog_ends
        self._before_epoch = before_epoch
        self._other_rows = other_rows
        self._limits = limits or {}
        self._origins: tuple[Partition, ...] = tuple(sorted(start.offsets))
        self._first_rows = first_rows
        self._check = check
        self._read_to = dict(start.offsets)
        self._lock = threading.Lock()
        self._watermarks = _tracker(program, start)
        self._input_ends = input_ends
        self._recorder = recorder or Recorder()
        self._after_commit = after_commit
        self._sampled_at = 0.0
        self._dropped: list[tuple[str, str, int]] = []
        self._reports: list[LaneReport] = []
        self._asked_for_ends_at = 0.0
        self._known_ends: Mapping[Partition, int] = {}
        self._missing: set[Partition] = set()  # partitions of which Spark has read more than epochs have taken
        # When something waits for the wall clock, and for the watermark, as the last epoch's lanes said; before the first
        # of a start nobody has said anything, and lanes are to be asked.
        self._due: int | None = 0 if program.waits_for_the_clock or program.has_watermarks else None
        self._event_due: int | None = None
        self._is_hurried = False  # whether a processor has asked for a commit in the last epoch
        self._mark: Mark | None = None
        self._marked_at = 0.0
        self._committed_at = self._began = time.monotonic()
        self._stopping = False
        self._paused = False
        self._failure: BaseException | None = None
        self._recorder.moved(self._partition_reports(), start.watermark)

    @property
    def is_done(self) -> bool:
        """Whether every bound of the run has been reached."""
        offsets = self.progress.offsets
        return bool(self._limits) and all(offsets[partition] >= limit for partition, limit in self._limits.items())

    def stop(self) -> None:
        """Let the epoch in hand come to its end, and take no other."""
        self._stopping = True
        with self._lock:
            pass

    def pause(self) -> None:
        """Let the epoch in hand come to its end, and take no other until `resume`: what Spark has read meanwhile is left."""
        self._paused = True
        with self._lock:
            pass

    def resume(
        self,
        begins: Mapping[Partition, int],
        partitions: Mapping[str, int] | None = None,
        topic_ids: Mapping[str, str] | None = None,
    ) -> Mapping[Partition, int]:
        """Go on from `begins` where they say something, and from the progress elsewhere; these are the offsets to read from.

        Partitions that are not known yet are read from now on, of topics that have so many partitions and these ids. An epoch
        that failed before the pause is forgotten: nothing of it is committed, and lanes take it back.
        """
        with self._lock:
            new = begins.keys() - self.progress.offsets.keys()
            self.progress = replace(self.progress, offsets={**self.progress.offsets, **begins})
            self._origins = tuple(sorted(self.progress.offsets))
            self._partitions = {**self._partitions, **(partitions or {})}
            self._topic_ids = {**self._topic_ids, **(topic_ids or {})}
            self._read_to, self._missing = dict(self.progress.offsets), set()
            self._watch(new)
            self._recorder.moved(self._partition_reports(), self.progress.watermark)
            self._failure, self._paused = None, False
            return self.progress.offsets

    def _watch(self, new: Iterable[Partition]) -> None:
        """Wait for the watermarks of partitions that have come."""
        if self._watermarks is None:
            self._watermarks = _tracker(self._program, self.progress)
            return
        for place in sorted(new):
            strategy = self._program.watermark_of(place[0])
            if strategy is not None:
                self._watermarks.add(place, strategy, at=int(time.time() * 1000))

    def on_batch(self, frame: Any, ends: Mapping[Partition, int]) -> None:
        """As many epochs as it takes of what Spark has read."""
        with self._lock:
            if self._stopping or self._paused or self.is_done:
                return
            try:
                self._run(frame, ends)
            except BaseException as error:
                self._failure = error
                raise

    def _run(self, frame: Any, ends: Mapping[Partition, int]) -> None:
        offsets, begins = self.progress.offsets, self._read_to
        if any(begins[place] != offset and place not in self._missing for place, offset in offsets.items()):
            raise StateError("Spark goes on from other offsets than those that are committed: start again")
        self._read_to = {place: max(offsets[place], min(end, self._limits.get(place, end))) for place, end in ends.items()}
        is_all = self._read_to == ends and not self._missing  # of what there is to take
        self._missing = {place for place, end in self._read_to.items() if end > offsets[place]}
        waiting = self._ahead(self._missing)
        self._take(frame if is_all and not waiting & self._missing else None, waiting)
        while not self._stopping and self._take_missing():
            pass

    def _take(self, frame: Any | None, waiting: frozenset[Partition]) -> None:
        """An epoch of what was read and not taken yet; `frame` has all of it, if there is one."""
        epoch = self._begin()
        faults.point("epoch.before_job")
        most = self._small if self._is_hurried else None
        done = self._fitting.run(epoch, Input(frame, self.progress.offsets, self._read_to, waiting, most))
        self._commit(done.epoch, done.rows, done.ends)
        self._missing = {place for place in self._missing if self._read_to[place] > self.progress.offsets[place]}

    def _take_missing(self) -> bool:
        """An epoch of what earlier ones have left, if some of it need not wait any longer; whether there was one."""
        if not self._missing:
            return False
        waiting = frozenset[Partition]() if self._watermarks is None else self._ahead(self._behind() | self._missing)
        if waiting >= self._missing:
            return False
        self._take(None, waiting)
        return True

    def _ahead(self, available: Iterable[Partition]) -> frozenset[Partition]:
        """The partitions that have to wait for others."""
        return frozenset() if self._watermarks is None else self._watermarks.ahead(frozenset(available))

    def tick(self) -> None:
        """An epoch without records, if something is due; otherwise nothing."""
        with self._lock:
            self._raise_failure()
            if (
                self._stopping
                or self._take_missing()
                or not (self._is_due() or time.monotonic() - self._committed_at > KEEP_ALIVE_S)
            ):
                return
            epoch = self._begin()
            self._commit(epoch, self._fitting.tick(epoch), self.progress.offsets)

    def _is_due(self) -> bool:
        """Whether something that a lane waits for has come: a time of the wall clock, or of the watermark."""
        if self._due is not None and self._due <= int(time.time() * 1000):
            return True
        if self._event_due is None or self._watermarks is None:
            return False
        return self._event_due <= self._advance(self._watermarks)

    def _advance(self, watermarks: WatermarkTracker[Partition]) -> int:
        """The application's watermark now. Where that takes for idle what is silent, it has to be read to its end."""
        now = int(time.time() * 1000)
        if any(watermarks.is_idle(partition, at=now) for partition in watermarks.watermarks):
            watermarks.lag(self._behind(), at=now)
        return watermarks.advance(at=now)

    def _behind(self) -> frozenset[Partition]:
        """The partitions that are not read to their end, where that was a moment ago."""
        if time.monotonic() - self._asked_for_ends_at > ENDS_EVERY_S:
            self._asked_for_ends_at, self._known_ends = time.monotonic(), self._input_ends()
        offsets = self.progress.offsets
        return frozenset(place for place, end in self._known_ends.items() if end > offsets.get(place, end))

    def while_idle(self, call: Callable[[], None]) -> None:
        """Call something that must not come between the steps of a commit; not at all while an epoch is under way."""
        if self._lock.acquire(blocking=False):
            try:
                self._raise_failure()
                call()
            finally:
                self._lock.release()

    def _raise_failure(self) -> None:
        """An epoch that failed says why it did; the state it leaves behind would only say what follows from that."""
        if self._failure is not None:
            raise self._failure

    def _begin_again(self, epoch: Epoch) -> None:
        """The same epoch once more, with its time all over again."""
        self._began = time.monotonic()
        self._recorder.epoch_begins(epoch.number, JOB)

    def _begin(self) -> Epoch:
        """The next epoch, taken in hand."""
        self._began = time.monotonic()
        self._recorder.epoch_begins(self.progress.epoch + 1, BEFORE)
        self._before_epoch()
        epoch = self._next()
        if time.monotonic() - self._sampled_at > SAMPLE_EVERY_S:
            self._sampled_at = time.monotonic()
            epoch = replace(epoch, is_sampled=True)
        self._recorder.phase_begins(JOB)
        return epoch

    def _next(self) -> Epoch:
        high = tuple(self.progress.high_times.get(origin, NO_TIMESTAMP) for origin in self._origins)
        mark, self._mark = self._mark, None
        number = self.progress.epoch + 1
        now = int(time.time() * 1000)
        if self._watermarks is None:
            return Epoch(number, self.progress.epoch, now, self._origins, high, self._partitions, mark)
        told = tuple(self._watermarks.watermarks.get(origin, NO_TIMESTAMP) for origin in self._origins)
        watermark = self._advance(self._watermarks)
        before = self.progress.watermark
        return Epoch(number, self.progress.epoch, now, self._origins, high, self._partitions, mark, watermark, told, before)

    def _commit(self, epoch: Epoch, table: pa.Table, ends: Mapping[Partition, int]) -> None:
        faults.point("epoch.after_job")
        self._recorder.phase_begins(CHECK)
        tables = [table, *self._other_rows()]  # not as one: Spark has its own names inside lists
        high_times = self._heed(tables)
        rows = [batch for each in tables for batch in rows_for_kafka(each)]
        checked = list(map(self._check, rows))
        left_out = sum(batch.num_rows for batch in rows) - sum(batch.num_rows for batch in checked)
        batches = [*self._first_batches(), *checked]
        progress = Progress(epoch.number, dict(ends), high_times)
        if self._watermarks is not None:
            progress = replace(progress, watermarks=dict(self._watermarks.watermarks), watermark=self._watermarks.reached)
        self._barrier.commit(epoch.number, batches, self._source_offsets(progress))
        records = sum(progress.offsets[place] - self.progress.offsets[place] for place in self._origins)
        self.progress = progress
        self._after_commit(epoch.number)
        self._record(epoch, records, batches, left_out)
        self._first_rows = None
        self._committed_at = time.monotonic()
        if records:
            self._sizing.went_well(records, self._committed_at - self._began)
        if self._committed_at - self._marked_at > MARK_EVERY_S:
            self._marked_at = self._committed_at
            self._mark = self._new_mark(epoch.number)

    def _record(self, epoch: Epoch, records: int, batches: Sequence[pa.RecordBatch], left_out: int) -> None:
        """Tell what the epoch was; `left_out` counts the rows that were too large for their topics."""
        dropped = [*self._dropped, ("(sinks)", "production error", left_out)] if left_out else self._dropped
        self._recorder.moved(self._partition_reports(), self.progress.watermark)
        self._recorder.epoch_committed(
            records, sent_by_topic(self._program.topics, batches), dropped, self._reports, epoch.is_sampled
        )

    def _partition_reports(self) -> dict[Partition, PartitionReport]:
        progress, watermarks, now = self.progress, self._watermarks, int(time.time() * 1000)
        idle = set() if watermarks is None else {place for place in watermarks.watermarks if watermarks.is_idle(place, at=now)}
        return {
            place: PartitionReport(
                *place,
                progress.offsets[place],
                -1,
                progress.high_times.get(place, NO_TIMESTAMP),
                progress.watermarks.get(place, NO_TIMESTAMP),
                place in idle,
            )
            for place in self._origins
        }

    def _new_mark(self, epoch: int) -> Mark | None:
        """How far the changelogs reach; without it a restart reads more, which is no reason to end."""
        try:
            return Mark(epoch, int(time.time() * 1000), dict(self._changelog_ends()))
        except (BrokerError, CommitError) as error:
            _log.warning("%s; a restart would have to read more of the changelogs", error)
            return None

    def _first_batches(self) -> Sequence[pa.RecordBatch]:
        return [] if self._first_rows is None else self._first_rows.to_batches()

    def _heed(self, tables: Sequence[pa.Table]) -> dict[Partition, int]:
        """Take note of what tasks have told besides rows for Kafka; how far each partition's time has come."""
        high_times = dict(self.progress.high_times)
        self._reports = [report for table in tables for report in reports_of(table)]
        told = [control for table in tables for control in _controls(table)]
        self._dropped = [entry for control in told for entry in control.dropped]
        self._due = min((control.due for control in told if control.due is not None), default=None)
        self._event_due = min((control.event_due for control in told if control.event_due is not None), default=None)
        self._is_hurried = any(control.wants_commit for control in told)
        for control in told:
            for origin, high in control.high_times.items():
                partition = self._origins[origin]
                high_times[partition] = max(high, high_times.get(partition, NO_TIMESTAMP))
            for origin, watermark in control.watermarks.items():
                assert self._watermarks is not None
                self._watermarks.heard(self._origins[origin], watermark, at=int(time.time() * 1000))
            for node, reason, count in control.dropped:
                _log.info("%s dropped %d records: %s", node, count, reason)
        return high_times

    def _source_offsets(self, progress: Progress) -> list[SourceOffset]:
        program = self._program
        offsets = []
        counts = Counter(topic for topic, _ in self._origins)
        for topic, partition in self._origins:
            metadata = CommitMetadata(
                epoch=progress.epoch,
                incarnation=program.incarnation,
                fingerprint=program.plan.fingerprint,
                lanes=program.lanes,
                shards=program.shards,
                high_time=progress.high_times.get((topic, partition), NO_TIMESTAMP),
                topic_id=self._topic_ids.get(topic),
                watermark=progress.watermarks.get((topic, partition), NO_TIMESTAMP),
                application_watermark=progress.watermark,
                partitions=counts[topic],
            )
            offsets.append(SourceOffset(topic, partition, progress.offsets[topic, partition], metadata.encode()))
        return offsets


def _controls(table: pa.Table) -> list[Control]:
    is_control = pc.equal(table.column("kind"), int(Kind.CONTROL))
    return list(map(decode_control, table.filter(is_control).column("value").to_pylist()))


def rows_for_kafka(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows that are to be published, in pieces of the table: nothing is copied, because an epoch may be large."""
    for batch in table.to_batches():
        is_kept = batch.column("kind").to_numpy(zero_copy_only=False) < Kind.CONTROL
        edges = np.flatnonzero(np.diff(is_kept, prepend=False, append=False))
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            yield batch.slice(start, end - start)


def sent_by_topic(topics: Sequence[str], batches: Sequence[pa.RecordBatch]) -> dict[str, int]:
    """How many rows go to each topic; those whose topic a record names itself, and dead letters, are each counted as one."""
    sent: dict[str, int] = {}
    for batch in batches:
        codes = batch.column("name").to_numpy(zero_copy_only=False)
        is_dead = batch.column("kind").to_numpy(zero_copy_only=False) == Kind.DEAD_LETTER
        counts = np.bincount(codes[~is_dead] + 1, minlength=1)  # quicker than sorting them; the first are those without a code
        for code in np.flatnonzero(counts).tolist():
            topic = topics[code - 1] if code else CHOSEN
            sent[topic] = sent.get(topic, 0) + int(counts[code])
        if is_dead.any():
            sent[DEAD_LETTERS] = sent.get(DEAD_LETTERS, 0) + int(is_dead.sum())
    return sent


def _tracker(program: Program, start: Progress) -> WatermarkTracker[Partition] | None:
    """What combines the partitions' watermarks; None if no source tells any."""
    strategies = {place: strategy for place in start.offsets if (strategy := program.watermark_of(place[0])) is not None}
    if not strategies:
        return None
    return WatermarkTracker(strategies, started_at=int(time.time() * 1000), known=start.watermarks, reached=start.watermark)
