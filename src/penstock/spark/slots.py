"""`SparkSlots`: slots in tasks of a long-running Spark job."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from penstock.engines.slots import Slot
from penstock.epochs.packing import packed
from penstock.epochs.program import Program
from penstock.errors import ConfigError, PenstockError
from penstock.once import once
from penstock.spark.context import Spark
from penstock.spark.lane_job import LaneJob
from penstock.spark.registration import Registration

_log = logging.getLogger(__name__)

_FIRST_S = 120.0
"""How long the first slot may take to register: its Python worker has to start and import."""

_OTHERS_S = 10.0
"""How long after the first one the others may take: they start at the same time. Then those that are there do without."""


class SparkSlots:
    """Slots of this machine, in a context that starts in the background. `prepare` is called once in every slot."""

    def __init__(self, program: Program, prepare: Callable[[], None], spark: Spark) -> None:
        self._title = program.application_id
        self._lanes = program.lanes
        self._spark = spark
        self._registration = Registration(packed(program, (program, prepare)), host=None)
        self._job: LaneJob | None = None
        self._failure: BaseException | None = None
        self._first_at = 0.0
        self._is_closed = False
        self._lock = threading.Lock()

    @once
    def size(self) -> int:
        """See `Slots.size`; a context of somebody else's is asked only once, because it may end."""
        return self._spark.slots(self._lanes)

    @property
    def hosts(self) -> Mapping[str, int]:
        """See `Slots.hosts`."""
        return self._registration.hosts

    def start(self) -> None:
        """See `Slots.start`."""
        self._spark.open()
        threading.Thread(target=self._submit, name="penstock-lane-job-start", daemon=True).start()

    def slot(self, position: int) -> Slot:
        """See `Slots.slot`; raises the error by which Spark could not start."""
        end = time.monotonic() + _FIRST_S
        while time.monotonic() < end:
            self._registration.wait_for(lambda: bool(self._registration.live) or self._problem is not None, 1.0)
            if self._problem is not None:
                raise self._problem
            if self._registration.live:
                self._await_first(position % self.size)
            live = self._registration.live
            if live:
                return live.get(position % self.size) or live[sorted(live)[position % len(live)]]
        cure = "Check the log of Spark's JVM, and that its Python can import penstock."
        text = f"No slot has registered within {_FIRST_S:g} s. {cure}"
        raise PenstockError(f"All slots were lost. {text}") if self._first_at else ConfigError(text)

    def _await_first(self, position: int) -> None:
        """Wait for a slot that has yet to come: otherwise the first one would restore all lanes, one after the other."""
        self._first_at = self._first_at or time.monotonic()
        left_s = self._first_at + _OTHERS_S - time.monotonic()
        self._registration.wait_for(lambda: self._registration.has_been(position) or self._problem is not None, max(0.0, left_s))

    def turn(self, epoch: int) -> bool:
        """See `Slots.turn`."""
        job = self._job
        if job is None:
            return False
        is_due = job.is_due
        if is_due:
            job.renew(epoch)
        job.note(epoch)
        return is_due

    def close(self) -> None:
        """See `Slots.close`. Stores are closed before the context stops."""
        with self._lock:
            self._is_closed = True
            if self._job is not None:
                self._job.close()
        self._registration.close()

    @property
    def _problem(self) -> BaseException | None:
        return self._failure or (None if self._job is None else self._job.failure)

    def _submit(self) -> None:
        try:
            context = self._spark.open().result()
            with self._lock:
                if not self._is_closed:
                    self._job = LaneJob(context, self._title, range(self.size), self._registration)
                    self._job.start()
        except BaseException as error:  # raised where a slot is needed
            self._failure = error
            self._registration.notify()
