"""The epochs of a running application: each is one job and one commit, one after the other, with data or by the clock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock import faults
from penstock.barrier import Barrier, CommitMetadata, SourceOffset
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import Kind, decode_control
from penstock.errors import BrokerError, CommitError, StateError
from penstock.records import NO_TIMESTAMP
from penstock.state import Mark

_log = logging.getLogger(__name__)

Partition = tuple[str, int]

MARK_EVERY_S = 10.0
"""How often lanes are told how far the changelogs reach, which is what a restart has to read at most."""

KEEP_ALIVE_S = 3600.0
"""An application without input commits at least this often: offsets of a group without members expire one by one."""


class Jobs(Protocol):
    """Where an epoch's job runs."""

    def run(self, frame: Any, epoch: Epoch, is_small: bool, limits: Mapping[Partition, int]) -> pa.Table:
        """The rows that the records of a micro-batch lead to."""

    def tick(self, epoch: Epoch) -> pa.Table:
        """The same without records."""


@dataclass(frozen=True)
class Progress:
    """How far an application has come: the epoch that is committed, and each source partition's offset and high time."""

    epoch: int
    offsets: Mapping[Partition, int]
    high_times: Mapping[Partition, int]


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
        partitions: Mapping[str, int],
        topic_ids: Mapping[str, str],
        changelog_ends: Callable[[], Mapping[str, int]],
        before_epoch: Callable[[], None] = lambda: None,
        limits: Mapping[Partition, int] | None = None,
        first_rows: pa.Table | None = None,
        check: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda rows: rows,
    ) -> None:
        self.progress = start
        self._program = program
        self._jobs = jobs
        self._barrier = barrier
        self._small = small
        self._partitions = partitions
        self._topic_ids = topic_ids
        self._changelog_ends = changelog_ends
        self._before_epoch = before_epoch
        self._limits = limits or {}
        self._origins: tuple[Partition, ...] = tuple(sorted(start.offsets))
        self._first_rows = first_rows
        self._check = check
        self._read_to = dict(start.offsets)
        self._lock = threading.Lock()
        self._due: dict[str, int] = {}
        self._mark: Mark | None = None
        self._marked_at = 0.0
        self._committed_at = time.monotonic()
        self._stopping = False
        self._failure: BaseException | None = None

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

    def on_batch(self, frame: Any, ends: Mapping[Partition, int]) -> None:
        """An epoch of what Spark has read."""
        with self._lock:
            if self._stopping or self.is_done:
                return
            try:
                self._run(frame, ends)
            except BaseException as error:
                self._failure = error
                raise

    def _run(self, frame: Any, ends: Mapping[Partition, int]) -> None:
        if self._read_to != dict(self.progress.offsets):
            raise StateError("Spark goes on from other offsets than those that are committed: start again")
        offsets = self.progress.offsets
        ends = {place: max(offsets[place], min(end, self._limits.get(place, end))) for place, end in ends.items()}
        count = sum(ends[place] - offsets[place] for place in self._origins)
        self._before_epoch()
        epoch = self._next()
        faults.point("epoch.before_job")
        rows = self._jobs.run(frame, epoch, count <= self._small, self._limits)
        self._commit(epoch, rows, ends)
        self._read_to = dict(ends)

    def tick(self) -> None:
        """An epoch without records, if something is due; otherwise nothing."""
        with self._lock:
            self._raise_failure()
            now = int(time.time() * 1000)
            is_due = bool(self._due) and min(self._due.values()) <= now
            if self._stopping or not (is_due or time.monotonic() - self._committed_at > KEEP_ALIVE_S):
                return
            self._before_epoch()
            epoch = self._next()
            self._commit(epoch, self._jobs.tick(epoch), self.progress.offsets)

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

    def _next(self) -> Epoch:
        high = tuple(self.progress.high_times.get(origin, NO_TIMESTAMP) for origin in self._origins)
        mark, self._mark = self._mark, None
        number = self.progress.epoch + 1
        now = int(time.time() * 1000)
        return Epoch(number, self.progress.epoch, now, self._origins, high, self._partitions, mark)

    def _commit(self, epoch: Epoch, table: pa.Table, ends: Mapping[Partition, int]) -> None:
        faults.point("epoch.after_job")
        rows, high_times = self._heed(table)
        batches = [*self._first_batches(), *map(self._check, rows.to_batches())]
        progress = Progress(epoch.number, dict(ends), high_times)
        self._barrier.commit(epoch.number, batches, self._source_offsets(progress))
        self.progress = progress
        self._first_rows = None
        self._committed_at = time.monotonic()
        if self._committed_at - self._marked_at > MARK_EVERY_S:
            self._marked_at = self._committed_at
            self._mark = self._new_mark(epoch.number)

    def _new_mark(self, epoch: int) -> Mark | None:
        """How far the changelogs reach; without it a restart reads more, which is no reason to end."""
        try:
            return Mark(epoch, int(time.time() * 1000), dict(self._changelog_ends()))
        except (BrokerError, CommitError) as error:
            _log.warning("%s; a restart would have to read more of the changelogs", error)
            return None

    def _first_batches(self) -> Sequence[pa.RecordBatch]:
        return [] if self._first_rows is None else self._first_rows.to_batches()

    def _heed(self, table: pa.Table) -> tuple[pa.Table, dict[Partition, int]]:
        """The rows for Kafka; what tasks have told besides is taken note of."""
        high_times = dict(self.progress.high_times)
        is_control = pc.equal(table.column("kind"), int(Kind.CONTROL))
        told = table.filter(is_control).column("value").to_pylist()
        if not told:
            self._due.clear()
            return table, high_times
        self._due.clear()
        for number, control in enumerate(map(decode_control, told)):
            for origin, high in control.high_times.items():
                partition = self._origins[origin]
                high_times[partition] = max(high, high_times.get(partition, NO_TIMESTAMP))
            if control.due is not None:
                self._due[str(number)] = control.due
            for node, reason, count in control.dropped:
                _log.info("%s dropped %d records: %s", node, count, reason)
        return table.filter(pc.invert(is_control)), high_times

    def _source_offsets(self, progress: Progress) -> list[SourceOffset]:
        program = self._program
        offsets = []
        for topic, partition in self._origins:
            metadata = CommitMetadata(
                epoch=progress.epoch,
                incarnation=program.incarnation,
                fingerprint=program.plan.fingerprint,
                lanes=program.lanes,
                shards=program.shards,
                high_time=progress.high_times.get((topic, partition), NO_TIMESTAMP),
                topic_id=self._topic_ids.get(topic),
            )
            offsets.append(SourceOffset(topic, partition, progress.offsets[topic, partition], metadata.encode()))
        return offsets
