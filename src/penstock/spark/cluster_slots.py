"""`ClusterSlots`: slots in Spark tasks on the executors of a cluster, which come and go."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from math import inf

from pyspark import SparkContext

from penstock.engines.port import SlotLostError
from penstock.engines.requests import EndProcess
from penstock.engines.serving import STATE_DIR
from penstock.engines.slots import Slot
from penstock.epochs.packing import packed
from penstock.epochs.program import Program
from penstock.errors import ConfigError, LaneMovedError, PenstockError
from penstock.spark.context import LOOPBACK, Spark
from penstock.spark.executors import EXECUTORS_TIMEOUT_S, active, address_of, by_host, inspected, refuse_unequal, settled
from penstock.spark.lane_job import LaneJob
from penstock.spark.registration import Registration
from penstock.state.remote.client import Address, LaneClient

_log = logging.getLogger(__name__)

_RETURN_S = 2.0
"""How long a lost slot may take to return before its lanes move to others."""

_END_S = 10.0
"""How long a slot may take to end the process of another one."""

_RENEWED_S = 20.0
"""How long all slots may take to register after a renewal: one that comes later would make its lanes move once more."""

_LOOK_EVERY_S = 0.5
_SPREAD_EVERY_S = 60.0
_OFF_S = 60.0
"""How long slots may be missing, or too many, before they are renewed: a host that comes back soon has its own again."""

_ANSWER_S = 2.0
"""How long the lane server of a host may take to answer."""


def slots_for(lanes: int, executors: Iterable[tuple[str, str, int]]) -> int:
    """Return the number of slots on executors: all cores but one, and at least one, even if nothing is left for other jobs."""
    return max(1, min(lanes, sum(cores for _, _, cores in executors) - 1))


class ClusterSlots:
    """Slots for a program's lanes, at most one per core, with a core left for other jobs. `prepare` is called once in each."""

    def __init__(self, program: Program, prepare: Callable[[], None], spark: Spark) -> None:
        self._program = program
        self._packed = packed(program, (program, prepare))
        self._spark = spark
        self._servers: dict[str, Address] = {}
        self._opened: Registration | None = None
        self._jobs: list[LaneJob] = []
        self._size = 0
        self._settled: Mapping[int, Slot] = {}
        self._executors: list[tuple[str, str, int]] = []
        self._spread_over: list[tuple[str, str, int]] = []
        self._is_renewed = False
        self._off_since: float | None = None
        self._looked_at = self._spread_at = 0.0
        self._lock = threading.RLock()

    @property
    def size(self) -> int:
        """See `Slots.size`."""
        return self._size

    @property
    def hosts(self) -> Mapping[str, int]:
        """See `Slots.hosts`."""
        return {} if self._opened is None else self._opened.hosts

    def start(self) -> None:
        """See `Slots.start`: tasks are submitted when executors are there."""
        self._spark.open()

    def slot(self, position: int) -> Slot:
        """See `SpreadSlots.slot`."""
        found = self._settled.get(position)
        if found is None or found.is_lost:
            raise SlotLostError(f"The slot at position {position} is lost.")
        return found

    def settled(self) -> Mapping[int, str]:
        """See `SpreadSlots.settled`: waits for the first executors, then for tasks; for those that are missing only a moment."""
        with self._lock:
            context = self._spark.open().result()
            if not self._jobs:
                self._wait_for_executors(context)
            self._grow(context)
            registration = self._registration
            later_s = _RENEWED_S if self._is_renewed else _RETURN_S
            all_s = later_s if self._settled else EXECUTORS_TIMEOUT_S
            registration.wait_for(lambda: len(registration.live) >= self._size or self._has_failed, all_s)
            self._is_renewed = False
            registration.wait_for(lambda: bool(registration.live) or self._has_failed, EXECUTORS_TIMEOUT_S)
            live = registration.live
            if not live:
                raise self._problem
            before, self._settled = self._settled, live
            self._end_given_up(before)
            return {position: slot.host for position, slot in self._settled.items()}

    def _end_given_up(self, before: Mapping[int, Slot]) -> None:
        """End the processes of slots that did not answer, through others of their hosts: they may hold the file of a lane."""
        for given_up in (slot for slot in before.values() if slot.is_given_up):
            for slot in self._settled.values():
                if slot.host == given_up.host:
                    with suppress(PenstockError):  # this one may be as stuck: then another one is asked
                        slot.ask(EndProcess(given_up.process), deadline=time.monotonic() + _END_S)
                        break

    def turn(self, epoch: int) -> bool:
        """See `Slots.turn`: all tasks become those of one job, and Spark spreads them over the executors that there are now."""
        if not self._jobs:
            return False
        is_due = any(job.is_due for job in self._jobs) or self._is_off() or self._is_uneven()
        if is_due:
            self._renew(epoch)
        for job in self._jobs:
            job.note(epoch)
        return is_due

    def _renew(self, epoch: int) -> None:
        """End all jobs, and submit one for an epoch and those after it."""
        with self._lock:
            for job in self._jobs:
                job.close()
            context, title = self._spark.open().result(), self._program.application_id
            self._executors = active(context)
            self._size = slots_for(self._program.lanes, self._executors)
            self._off_since = inf  # if this does not help, nothing does before the next lease
            self._jobs = [LaneJob(context, title, range(self._size), self._registration, after=epoch - 1)]
            self._jobs[0].start()
            self._is_renewed = True
            self._spread_over = self._executors
            self._spread_at = time.monotonic()

    def _is_off(self) -> bool:
        """Whether slots have been missing for a while, or take the core that is left for other jobs.

        Tasks whose connection the driver has closed do not come back, although their host may: Spark takes them for done.
        """
        wanted = slots_for(self._program.lanes, self._executors)
        if len(self._registration.live) >= self._size <= wanted:
            self._off_since = None
        elif self._off_since is None:
            self._off_since = time.monotonic()
        return self._off_since is not None and time.monotonic() - self._off_since >= _OFF_S

    def _is_uneven(self) -> bool:
        """Whether a host has a free core and fewer slots than another, so that one could move there.

        Renewed for that once a minute at most, and once for the same executors: where tasks run is Spark's decision.
        """
        if time.monotonic() - self._spread_at < _SPREAD_EVERY_S or self._executors == self._spread_over:
            return False
        if len(self._registration.live) < self._size:
            return False  # some are missing, perhaps for a moment
        slots: Counter[str] = Counter()
        for host, count in self._registration.hosts.items():
            slots[address_of(host)] += count
        cores = by_host((name, address_of(host), count) for name, host, count in self._executors)
        if not slots.keys() <= cores.keys():
            return False  # a host is gone, or has an address that Spark does not know
        most = max(slots.values(), default=0)
        return any(slots[host] + 1 < most and slots[host] < count for host, count in cores.items())

    def have_changed(self) -> bool:
        """See `SpreadSlots.have_changed`; looks for new executors twice a second at most."""
        if self._spark.is_open and time.monotonic() - self._looked_at >= _LOOK_EVERY_S:
            self._grow(self._spark.open().result())
        return self._opened is None or self._opened.live != self._settled

    def watch(self, servers: Mapping[str, Address]) -> None:
        """See `SpreadSlots.watch`."""
        self._servers = dict(servers)

    def close(self) -> None:
        """See `Slots.close`."""
        with self._lock:
            for job in self._jobs:
                job.close()
        if self._opened is not None:
            self._opened.close()

    def _grow(self, context: SparkContext) -> None:
        """Submit tasks for executors that have come: a job of their own, beside those that run."""
        self._looked_at = time.monotonic()
        self._executors = active(context)
        wanted = slots_for(self._program.lanes, self._executors)
        if wanted > self._size:
            job = LaneJob(context, self._program.application_id, range(self._size, wanted), self._registration)
            self._jobs.append(job)
            self._size = wanted
            job.start()

    def _wait_for_executors(self, context: SparkContext) -> None:
        """Wait until executors are there, and compare them with the driver."""
        cores = settled(context).total()
        if cores < 2:
            raise ConfigError(
                "The executors of the cluster have a single core, which lanes would take from all other jobs of Spark. Set "
                "spark.executor.cores to 2 or more, or start more executors (spark.cores.max, spark.executor.instances)."
            )
        refuse_unequal(inspected(context, cores, self._program.directory, STATE_DIR))

    @property
    def _registration(self) -> Registration:
        """Where tasks register: at the driver's address, which Spark knows."""
        if self._opened is None:
            host = self._spark.open().result().getConf().get("spark.driver.host", LOOPBACK)
            self._opened = Registration(self._packed, host, self._is_there, self._program.ports)
        return self._opened

    @property
    def _has_failed(self) -> bool:
        return any(job.failure is not None for job in self._jobs)

    @property
    def _problem(self) -> PenstockError:
        """Why there is no slot."""
        failures = [job.failure for job in self._jobs if job.failure is not None]
        if failures:
            return failures[0]
        what = "All slots were lost. No slot" if self._settled else "No slot"
        cure = "Check that executors can start Python, and reach the driver at spark.driver.host."
        return PenstockError(f"{what} has registered within {EXECUTORS_TIMEOUT_S:g} s. {cure}")

    def _is_there(self, host: str) -> bool:
        """Whether a host answers: its lane server does, as far as it is known."""
        address = self._servers.get(host)
        if address is None:
            return True
        try:
            with closing(LaneClient(address, self._program.server_key, _ANSWER_S)) as client:
                client.reach()
        except LaneMovedError as error:
            _log.warning("host %s does not answer: %s", host, error)
            return False
        return True
