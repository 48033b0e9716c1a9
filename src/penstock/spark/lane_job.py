"""The lane job: the Spark job whose tasks are the slots of an application, as long as it runs.

Its tasks are plain ones: if one is lost, Spark starts that one again, and the others never notice. The job is submitted again
after a lease, so that what leaks is given back; and if it fails as a whole: somebody has cancelled it, or one of its tasks was
lost too often. A job is named when it is submitted, before anybody knows what it will have done: that is the name of a second
job, without tasks, which is submitted after it, so that Spark's UI and event log have a history.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pyspark import SparkContext

from penstock.engines.serving import Totals, added
from penstock.errors import PenstockError
from penstock.spark.failures import end_of
from penstock.spark.lane_task import LaneTask
from penstock.spark.registration import Registration

_log = logging.getLogger(__name__)

POOL = "penstock-lanes"
LEASE_S = 600.0
_LOST_IN_S, _MOST_LOST = 60.0, 5
"""If the job fails more often than this in so many seconds, it is given up."""

_END_S = 10.0
_AGAIN_S = 0.1
_REASON = 2_000


@dataclass
class _Lease:
    """A run of the job: when it began, and the epochs that have begun in it. `after` is the last one before, if known."""

    began: float
    after: int | None
    first: int | None = None
    last: int | None = None
    is_renewed: bool = False
    """Whether another lease follows it, so that it ends, however it does, without having failed."""

    def note(self, epoch: int) -> None:
        """Note that an epoch begins."""
        self.first = epoch if self.first is None else self.first
        self.last = epoch

    def __str__(self) -> str:
        return "no epoch" if self.first is None else f"epochs {self.first}-{self.last}"


class LaneJob:
    """Runs a task for each of some positions, which register at `registration`; `clock` says when a lease is over.

    `after` is the epoch before the first one that it runs, if that is known.
    """

    def __init__(
        self,
        context: SparkContext,
        title: str,
        positions: range,
        registration: Registration,
        clock: Callable[[], float] = time.monotonic,
        after: int | None = None,
    ) -> None:
        self._context = context
        self._title = title
        self._positions = positions
        self._registration = registration
        self._clock = clock
        self._group = f"penstock-{title}-{positions.start}"
        self._is_closing = False
        self._has_ended = True
        self._failed_at: deque[float] = deque(maxlen=_MOST_LOST)
        self._lease = _Lease(clock(), after)
        self._running: _Lease | None = None
        """That of the tasks which run now; `_lease` is the next one already if they are to end."""
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="penstock-lane-job", daemon=True)
        self.failure: PenstockError | None = None
        """Why the job was given up; None if it runs."""
        self.totals: Totals = Totals()
        """What its tasks have done, as far as they have ended."""

    def start(self) -> None:
        """Submit the job, without waiting."""
        self._has_ended = False
        self._thread.start()

    @property
    def is_due(self) -> bool:
        """Whether the lease is over, so that the job should be renewed."""
        return self._clock() - self._lease.began >= LEASE_S

    def note(self, epoch: int) -> None:
        """Note that an epoch begins, after a renewal if there is one."""
        with self._changed:
            self._lease.note(epoch)

    def renew(self, epoch: int) -> None:
        """Let all tasks end, and submit the job again for an epoch: Python's processes take it up with what they have loaded."""
        with self._changed:
            running = self._running
            self._lease.is_renewed = True
            self._lease = _Lease(self._clock(), epoch - 1)
            self._registration.close_slots(self._positions)
        if running is not None:
            is_over = (lambda: self._running is not running,)
            threading.Thread(target=self._end, args=is_over, name="penstock-lane-job-renewal", daemon=True).start()

    def close(self) -> None:
        """Let all tasks end, and with them the job; tasks that register only now, too."""
        self._is_closing = True
        self._registration.close_slots(self._positions)
        self._end(lambda: self._has_ended)

    def _end(self, is_over: Callable[[], bool]) -> None:
        """Close slots until it is over, those of tasks that register only now, too; cancel the job if a task does not end.

        Whatever is submitted afterwards is not touched: it takes the same lock.
        """
        end = time.monotonic() + _END_S
        with self._changed:
            while not self._changed.wait_for(is_over, _AGAIN_S):
                if time.monotonic() >= end:
                    _log.warning("the lane job of %s has not ended within %g s, and is cancelled", self._title, _END_S)
                    with suppress(Exception):  # without a JVM, the job has ended too
                        self._context.cancelJobGroup(self._group)
                    return
                self._registration.close_slots(self._positions)

    def _run(self) -> None:
        try:
            self._run_leases()
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _run_leases(self) -> None:
        task = LaneTask(self._registration.address, self._registration.key)
        while not self._is_closing and self.failure is None:
            with self._changed:
                lease = self._running = self._lease
                lease.began = self._clock()
            try:
                self._ended(lease, self._done(lease, task))
            except Exception as error:  # submitted again, or raised where a slot is needed
                if not (lease.is_renewed or self._is_closing):
                    self._lost(error)

    def _done(self, lease: _Lease, task: LaneTask) -> Totals:
        """Run the tasks of a lease; return what they have done when all have ended."""
        self._name_job("" if lease.after is None else f", after epoch {lease.after}")
        try:
            return added(self._context.parallelize(self._positions, len(self._positions)).mapPartitions(task).collect())
        finally:
            with self._changed:
                self._running = None
                self._changed.notify_all()
                if self._lease is lease:  # nobody has renewed it: its tasks were lost, or closed
                    self._lease = _Lease(self._clock(), lease.after if lease.last is None else lease.last)

    def _ended(self, lease: _Lease, done: Totals) -> None:
        """Note what the tasks of a lease have done."""
        self.totals = added([self.totals, done])
        _log.info("the lane job of %s ended (%s): %s", self._title, lease, done)
        self._name_job(f", {lease}: {done}")
        self._context.emptyRDD().collect()  # starts no task

    def _name_job(self, what: str) -> None:
        """Name the next job of this thread, and put it into the pool of lanes."""
        self._context.setLocalProperty("spark.scheduler.pool", POOL)
        about = f"penstock {self._title}: slots {self._positions[0]}-{self._positions[-1]}{what}"
        self._context.setJobGroup(self._group, about, interruptOnCancel=False)

    def _lost(self, error: Exception) -> None:
        """Note that the job has failed; give it up if that happens too often, or if nothing runs jobs any more."""
        now, reason = self._clock(), str(error).strip()[:_REASON]
        self.failure = end_of(self._context)
        if self.failure is None and len(self._failed_at) == _MOST_LOST and now - self._failed_at[0] < _LOST_IN_S:
            self.failure = PenstockError(
                f"The Spark job of the lanes has failed {_MOST_LOST + 1} times within {_LOST_IN_S:g} s. The last time:\n{reason}"
            )
        if self.failure is not None:
            _log.error("the Spark job of the lanes has failed, and is given up: %s", reason)
            self._registration.close_slots(self._positions)
            self._registration.notify()
            return
        self._failed_at.append(now)
        _log.warning("the Spark job of the lanes has failed, and is submitted again: %s", reason)
        self._registration.close_slots(self._positions)
