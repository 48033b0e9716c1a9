"""Slots on the executors of a cluster that come and go: executors are numbers here, and tasks are threads of this process."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines import serving
from penstock.engines.connections import connected
from penstock.engines.messages import receive
from penstock.engines.port import LateError, SlotLostError
from penstock.engines.requests import Load
from penstock.engines.serving import serve
from penstock.engines.slots import Slot
from penstock.epochs.program import Program
from penstock.errors import ConfigError, LaneMovedError, PenstockError
from penstock.spark import cluster_slots as module
from penstock.spark.cluster_slots import ClusterSlots
from penstock.spark.lane_task import Hello, introduce
from penstock.spark.registration import Registration
from tests.unit.deploy.restarts import is_restarted_after
from tests.unit.engines.programs import nothing, stateless
from tests.unit.epochs.application import program_of
from tests.unit.epochs.spread import KEY
from tests.unit.spark.without_java import Spark
from verification.harness.processes import wait_until

PATIENCE_S = 20.0
LANES = 4


class Cluster:
    """Executors by their hosts, and the jobs that run on them."""

    def __init__(self) -> None:
        self.cores: dict[str, int] = {"a": 2, "b": 3}
        self.addresses: dict[str, str] = {}
        """Of hosts that are called otherwise by their tasks."""
        self.jobs: list[Job] = []
        self.absent: set[int] = set()
        """Positions whose tasks do not come."""
        self.numbers = count()
        self.inspected: list[int] = []
        self.process = 0
        self.slow_s = 0.0
        """How long tasks take to answer."""

    @property
    def executors(self) -> list[tuple[str, str, int]]:
        return [(str(number), host, cores) for number, (host, cores) in enumerate(self.cores.items())]

    def host_of(self, position: int) -> str:
        """Where Spark runs the task of a position."""
        hosts = [host for host, cores in self.cores.items() for _ in range(cores)]
        return hosts[position % len(hosts)]

    def lose(self, host: str) -> None:
        """An executor and its tasks are lost; Spark has no other place for them."""
        del self.cores[host]
        for job in self.jobs:
            job.lose(host)


class Job:
    """The job of some positions, as `LaneJob` is."""

    def __init__(self, cluster: Cluster, positions: range, registration: Registration, after: int | None) -> None:
        self.positions = positions
        self.after = after
        self.failure: PenstockError | None = None
        self.is_due = self.is_closed = False
        self.epochs: list[int] = []
        self._cluster = cluster
        self._registration = registration
        self._tasks: list[tuple[str, socket.socket]] = []

    def start(self) -> None:
        for position in self.positions:
            if position not in self._cluster.absent:
                self.run(position)

    def run(self, position: int) -> None:
        """Start the task of a position, perhaps once more."""
        host, at = self._cluster.host_of(position), self._registration
        connection = connected(at.address, at.key)
        self._tasks.append((host, connection))
        introduce(connection, at.key, Hello(position, next(self._cluster.numbers), self._cluster.process, host))
        threading.Thread(target=_serve, args=(connection,), daemon=True).start()

    def lose(self, host: str) -> None:
        for at, connection in self._tasks:
            if at == host:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def note(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def close(self) -> None:
        self.is_closed = True
        self._registration.close_slots(self.positions)

    def fail(self, error: PenstockError) -> None:
        """Give the job up."""
        self.failure = error
        self._registration.close_slots(self.positions)
        self._registration.notify()


def _serve(connection: socket.socket) -> None:
    with connection:
        _, program = receive(connection)
        serve(connection, program)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()

    def job(context: Any, title: str, positions: range, registration: Registration, after: int | None = None) -> Job:
        made.jobs.append(Job(made, positions, registration, after))
        return made.jobs[-1]

    def loaded(packed: bytes) -> Program:
        time.sleep(made.slow_s)
        return serving_loaded(packed)

    serving_loaded = serving.loaded
    monkeypatch.setattr(serving, "_programs", {})
    monkeypatch.setattr(serving, "loaded", loaded)
    monkeypatch.setattr(module, "LaneJob", job)
    monkeypatch.setattr(module, "active", lambda context: made.executors)
    monkeypatch.setattr(module, "settled", lambda context: Counter(made.cores))
    monkeypatch.setattr(module, "inspected", lambda context, tasks, *_: made.inspected.append(tasks))
    monkeypatch.setattr(module, "refuse_unequal", lambda found: None)
    monkeypatch.setattr(module, "address_of", lambda host: made.addresses.get(host, host))
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.0)
    before = gc.get_threshold()
    yield made
    gc.set_threshold(*before)


@pytest.fixture
def slots(cluster: Cluster) -> Iterator[ClusterSlots]:
    with ClosingSlots(LANES) as made:
        yield made


class ClosingSlots:
    """Slots for so many lanes, closed in the end."""

    def __init__(self, lanes: int) -> None:
        conf = {"spark.driver.host": "127.0.0.1"}
        spark: Any = Spark(SimpleNamespace(getConf=lambda: conf))
        program = program_of(stateless(), lanes, is_spread=True, server_key=KEY)
        self._slots = ClusterSlots(program, nothing, spark)

    def __enter__(self) -> ClusterSlots:
        self._slots.start()
        return self._slots

    def __exit__(self, *_: object) -> None:
        self._slots.close()


def until(what: str, is_so: Callable[[], bool]) -> None:
    wait_until(what, is_so, PATIENCE_S, every_s=0.005)


class TestSettled:
    def test_there_is_one_per_core_but_one_and_none_without_a_lane(self, cluster: Cluster, slots: ClusterSlots) -> None:
        assert slots.settled() == {0: "a", 1: "a", 2: "b", 3: "b"}
        assert (slots.size, slots.hosts) == (4, {"a": 2, "b": 2})
        assert [job.positions for job in cluster.jobs] == [range(4)]
        with ClosingSlots(9) as more:
            assert list(more.settled()) == [0, 1, 2, 3]

    def test_before_that_there_is_none(self, cluster: Cluster, slots: ClusterSlots) -> None:
        assert (slots.size, slots.hosts, cluster.jobs) == (0, {}, [])
        assert slots.have_changed()

    def test_every_core_is_compared_with_the_driver_once(self, cluster: Cluster, slots: ClusterSlots) -> None:
        slots.settled()
        slots.settled()
        assert cluster.inspected == [5]

    def test_a_single_core_is_refused_with_the_cure(self, cluster: Cluster, slots: ClusterSlots) -> None:
        cluster.cores = {"a": 1}
        with pytest.raises(ConfigError, match=r"have a single core.* Set spark\.executor\.cores to 2 or more"):
            slots.settled()

    def test_a_job_that_was_given_up_is_the_reason(self, cluster: Cluster, slots: ClusterSlots) -> None:
        slots.settled()
        cluster.jobs[0].fail(PenstockError("The Spark job of the lanes has failed."))
        with pytest.raises(PenstockError, match="The Spark job of the lanes has failed"):
            slots.settled()

    def test_tasks_that_do_not_come_are_an_error_after_a_while(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "EXECUTORS_TIMEOUT_S", 0.1)
        cluster.absent = set(range(4))
        with pytest.raises(
            PenstockError, match=r"^No slot has registered within 0\.1 s\. Check that executors can start"
        ) as found:
            slots.settled()
        assert is_restarted_after(found.value)

    def test_an_application_that_has_lost_all_slots_for_a_while_is_started_again(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slots.settled()
        monkeypatch.setattr(module, "EXECUTORS_TIMEOUT_S", 0.1)
        monkeypatch.setattr(module, "_RETURN_S", 0.0)
        slots._registration.close_slots(range(4))
        with pytest.raises(PenstockError, match=r"All slots were lost\. No slot has registered within") as found:
            slots.settled()
        assert is_restarted_after(found.value)

    def test_some_are_enough_if_the_others_do_not_come(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "EXECUTORS_TIMEOUT_S", 0.3)
        monkeypatch.setattr(module, "_RETURN_S", 0.0)
        cluster.absent = {1}
        assert slots.settled()
        until("the others are there", lambda: list(slots.settled()) == [0, 2, 3])


class TestChanges:
    def test_nothing_changes_by_itself(self, cluster: Cluster, slots: ClusterSlots) -> None:
        slots.settled()
        assert not slots.have_changed()
        assert not slots.turn(1)
        assert slots.slot(3).ask(Load()).size == 0

    def test_a_lost_slot_is_not_used_again(self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_RETURN_S", 0.05)
        slots.settled()
        slot = slots.slot(2)
        cluster.lose("b")
        with pytest.raises(SlotLostError):
            slot.ask(Load())
        assert slots.have_changed()
        with pytest.raises(SlotLostError, match="The slot at position 2 is lost"):
            slots.slot(2)
        assert slots.slot(0).ask(Load()).size == 0
        with pytest.raises(SlotLostError):
            slots.slot(3).ask(Load())
        assert slots.settled() == {0: "a", 1: "a"}
        assert not slots.have_changed()

    def test_a_position_that_is_not_there_is_lost(self, cluster: Cluster, slots: ClusterSlots) -> None:
        slots.settled()
        with pytest.raises(SlotLostError, match="The slot at position 7 is lost"):
            slots.slot(7)

    def test_the_task_that_replaces_another_is_a_change(self, cluster: Cluster, slots: ClusterSlots) -> None:
        slots.settled()
        before = slots.slot(1)
        cluster.jobs[0].run(1)
        until("it has registered", lambda: before.is_lost)
        assert slots.have_changed()
        assert list(slots.settled()) == [0, 1, 2, 3]
        assert slots.slot(1) is not before

    def test_new_executors_get_a_job_beside_the_others(self, cluster: Cluster) -> None:
        with ClosingSlots(6) as slots:
            assert list(slots.settled()) == [0, 1, 2, 3]
            cluster.cores["d"] = 4
            until("the change is noticed", slots.have_changed)
            assert [job.positions for job in cluster.jobs] == [range(4), range(4, 6)]
            assert list(slots.settled()) == [0, 1, 2, 3, 4, 5]
            assert slots.slot(0).ask(Load()).size == 0
            assert not slots.have_changed()

    def test_they_are_looked_for_now_and_then(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slots.settled()
        looks: list[int] = []

        def active(context: Any) -> Any:
            looks.append(1)
            return cluster.executors

        monkeypatch.setattr(module, "active", active)
        monkeypatch.setattr(module, "_LOOK_EVERY_S", 30.0)
        assert not any(slots.have_changed() for _ in range(5))
        assert looks == []
        monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.0)
        slots.have_changed()
        assert looks == [1]

    def test_a_host_that_does_not_answer_is_lost(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        slots.settled()
        monkeypatch.setattr("penstock.engines.watching._LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(module, "LaneClient", unreachable("b"))
        slots.watch({"a": ("a", 7), "b": ("b", 7)})
        cluster.slow_s = 0.2
        with pytest.raises(SlotLostError, match="its host does not answer"):
            slots.slot(2).ask(Load())
        assert "host b does not answer: gone" in caplog.text
        assert slots.slot(0).ask(Load()).size == 0  # its host answers, although it is as slow


def unreachable(lost: str) -> Any:
    """Lane clients that reach all hosts but one."""

    class Client:
        def __init__(self, address: Any, key: bytes, patience_s: float) -> None:
            assert (key, patience_s) == (KEY, 2.0)
            self._host = address[0]

        def reach(self) -> None:
            if self._host == lost:
                raise LaneMovedError("gone")

        def close(self) -> None:
            """Nothing is open."""

    return Client


class TestRenewal:
    def test_when_a_lease_is_over_all_tasks_become_those_of_one_job(self, cluster: Cluster) -> None:
        with ClosingSlots(6) as slots:
            slots.settled()
            cluster.cores["d"] = 4
            until("the change is noticed", slots.have_changed)
            slots.settled()
            before = [slots.slot(position) for position in range(6)]
            slots._spread_at = time.monotonic()  # where they are is not the point here
            assert not slots.turn(6)
            cluster.jobs[0].is_due = True
            assert slots.turn(7)
            assert [(job.after, job.epochs) for job in cluster.jobs] == [(None, [6]), (None, [6]), (6, [7])]
            assert [job.is_closed for job in cluster.jobs] == [True, True, False]
            assert cluster.jobs[-1].positions == range(6)
            assert all(slot.is_lost for slot in before)
            assert list(slots.settled()) == [0, 1, 2, 3, 4, 5]
            assert not slots.turn(8)

    def test_so_they_do_if_an_executor_has_none_although_another_has_several(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.cores = {"a": 4}
        slots.settled()
        cluster.cores = {"a": 4, "b": 1}
        slots.have_changed()
        slots.settled()
        assert slots.hosts == {"a": 4}
        monkeypatch.setattr(module, "_SPREAD_EVERY_S", 0.0)
        cluster.cores = {"b": 2, "a": 3}
        assert slots.turn(1)
        assert slots.settled() == {0: "b", 1: "b", 2: "a", 3: "a"}
        assert not slots.turn(2)

    def test_so_they_do_if_slots_are_missing_for_a_while(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The driver has closed them because their host hung: their tasks have ended, and Spark does not start them again."""
        monkeypatch.setattr(module, "_RETURN_S", 0.0)
        monkeypatch.setattr(module, "_RENEWED_S", 0.05)
        slots.settled()
        slots._registration.close_slots({2, 3})
        assert slots.settled() == {0: "a", 1: "a"}
        assert not slots.turn(1)
        monkeypatch.setattr(module, "_OFF_S", 0.0)
        cluster.absent = {3}
        assert slots.turn(1)
        until("those that come are there", lambda: list(slots.settled()) == [0, 1, 2])
        assert not slots.turn(2)  # it would not help more often
        cluster.jobs[-1].run(3)
        until("all are there", lambda: list(slots.settled()) == [0, 1, 2, 3])
        assert not slots.turn(3)
        slots._registration.close_slots({3})
        assert slots.turn(4)
        slots.settled()

    def test_a_moment_without_a_slot_is_none(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slots.settled()
        slots._registration.close_slots({3})
        assert not slots.turn(1)
        cluster.jobs[0].run(3)
        slots.settled()
        assert not slots.turn(2)
        monkeypatch.setattr(module, "_OFF_S", 0.2)
        slots._registration.close_slots({3})
        assert not slots.turn(3)
        slots.settled()

    def test_there_are_fewer_of_them_when_executors_have_gone_for_good(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Their tasks have taken the core that is left for other jobs."""
        slots.settled()
        cluster.cores = {"a": 2, "b": 2}
        assert not slots.turn(1)
        slots.have_changed()
        assert not slots.turn(2)
        monkeypatch.setattr(module, "_OFF_S", 0.0)
        assert slots.turn(3)
        assert (slots.size, list(slots.settled())) == (3, [0, 1, 2])
        assert not slots.turn(4)
        cluster.cores["d"] = 2
        slots.have_changed()
        assert list(slots.settled()) == [0, 1, 2, 3]

    def test_a_single_core_that_is_left_has_a_slot(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_OFF_S", 0.0)
        slots.settled()
        cluster.cores = {"a": 1}
        slots.have_changed()
        assert slots.turn(1)
        assert slots.settled() == {0: "a"}

    def test_before_there_are_any_nothing_is_renewed(self, cluster: Cluster, slots: ClusterSlots) -> None:
        assert not slots.turn(1)
        assert cluster.jobs == []

    def uneven(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, **cores: int) -> bool:
        """Whether slots that all but one are on the host a are renewed when the cluster has these cores."""
        monkeypatch.setattr(module, "_SPREAD_EVERY_S", 0.0)
        with ClosingSlots(LANES) as slots:
            cluster.cores = {"a": 3, "b": 2}
            slots.settled()
            cluster.cores = cores
            slots.have_changed()
            is_renewed = slots.turn(1)
            slots.settled()
            return is_renewed

    def test_a_host_without_a_free_core_has_its_share(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not self.uneven(cluster, monkeypatch, a=3, b=1)
        assert self.uneven(cluster, monkeypatch, a=3, b=1, c=1)

    def test_hosts_are_compared_by_their_addresses(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster.addresses = {"a.example.com": "a", "b.example.com": "b"}
        named = {"a.example.com": 3, "b.example.com": 1}
        assert not self.uneven(cluster, monkeypatch, **named)
        assert self.uneven(cluster, monkeypatch, **named, c=1)

    def test_names_that_cannot_be_compared_do_not_count(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not self.uneven(cluster, monkeypatch, **{"a.example.com": 3, "b.example.com": 2})

    def test_what_spark_does_not_make_even_is_left_until_executors_change(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_SPREAD_EVERY_S", 0.0)
        monkeypatch.setattr(cluster, "host_of", lambda position: "a")
        cluster.cores = {"a": 4, "b": 4}
        slots.settled()
        assert slots.turn(1)
        slots.settled()
        assert not slots.turn(2)
        cluster.cores["d"] = 1
        slots.have_changed()
        assert slots.turn(3)
        slots.settled()

    def test_after_a_renewal_slots_may_take_longer_than_after_a_loss(
        self, cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_RETURN_S", 0.0)
        slots.settled()
        cluster.jobs[0].is_due = True
        cluster.absent = {3}
        assert slots.turn(1)
        threading.Timer(0.3, cluster.jobs[-1].run, [3]).start()
        assert list(slots.settled()) == [0, 1, 2, 3]
        slots._registration.close_slots({3})
        assert list(slots.settled()) == [0, 1, 2]

    def test_that_is_looked_at_once_a_minute_at_most(self, cluster: Cluster, slots: ClusterSlots) -> None:
        cluster.cores = {"a": 4}
        slots.settled()
        slots._spread_at = time.monotonic()
        cluster.cores = {"a": 4, "b": 4}
        slots.have_changed()
        assert not slots.turn(1)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_the_process_of_a_slot_that_was_given_up_is_ended_through_another_of_its_host(
    cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold the file of a lane."""
    monkeypatch.setattr(module, "_RETURN_S", 0.05)
    command = [sys.executable, "-c", "import time; time.sleep(60)", "penstock.spark.daemon"]
    with subprocess.Popen(command) as process:
        cluster.process = process.pid
        slots.settled()
        cluster.slow_s = 0.2
        with pytest.raises(LateError):
            slots.slot(2).ask(Load(), deadline=0.0)
        cluster.slow_s = 0.0
        assert process.poll() is None
        assert sorted(slots.settled()) == [0, 1, 3]
        assert process.wait(PATIENCE_S) < 0


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_if_that_one_does_not_answer_either_a_third_one_ends_it(
    cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RETURN_S", 0.05)
    monkeypatch.setattr(module, "_END_S", 0.2)
    cluster.cores = {"a": 4}
    command = [sys.executable, "-c", "import time; time.sleep(60)", "penstock.spark.daemon"]
    with subprocess.Popen(command) as process:
        cluster.process = process.pid
        slots.settled()
        first, last = slots.slot(0), slots.slot(2)
        stuck: list[Slot] = []
        ask = Slot.ask

        def asked(slot: Slot, request: Any, batches: Any = (), deadline: float = inf) -> Any:
            if slot is first:
                stuck.append(slot)
                assert deadline - time.monotonic() <= 0.2
                raise LateError("It is suspended, too.")
            return ask(slot, request, batches, deadline)

        last.kill()
        monkeypatch.setattr(Slot, "ask", asked)
        slots.settled()
        assert stuck == [first]
        assert process.wait(PATIENCE_S) < 0


def test_a_slot_that_has_just_ended_is_not(cluster: Cluster, slots: ClusterSlots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETURN_S", 0.05)
    command = [sys.executable, "-c", "import time; time.sleep(60)", "penstock.spark.daemon"]
    with subprocess.Popen(command) as process:
        cluster.process = process.pid
        slots.settled()
        cluster.lose("b")
        with pytest.raises(SlotLostError):
            slots.slot(2).ask(Load())
        slots.settled()
        assert process.poll() is None
        process.kill()


def test_closing_ends_jobs_and_slots(cluster: Cluster, slots: ClusterSlots) -> None:
    slots.settled()
    found = [slots.slot(position) for position in range(4)]
    slots.close()
    assert all(slot.is_lost for slot in found)
    assert [job.is_closed for job in cluster.jobs] == [True]
    assert slots.hosts == {}
