"""The lane job, with a context that only says how each run of it ends."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines.serving import Totals
from penstock.errors import PenstockError
from penstock.spark import lane_job as module
from penstock.spark.lane_job import LEASE_S, LaneJob
from penstock.spark.lane_task import LaneTask
from verification.harness.processes import wait_until

PATIENCE_S = 20.0


class Driver:
    """A context and a registration in one: runs go on until slots are closed, or until a test lets them fail."""

    address, key = "socket", b"key"

    def __init__(self) -> None:
        self.now = 1_000.0
        self.runs: list[range] = []
        self.abouts: list[str] = []
        self.history: list[str] = []
        """The names of jobs without tasks."""
        self.groups: list[str] = []
        self.properties: dict[str, str] = {}
        self.closed: list[range] = []
        self.cancelled: list[str] = []
        self.notices = 0
        self.tasks: list[LaneTask] = []
        self.is_stopped = False
        self.is_deaf = False
        """Whether tasks go on although their slots are closed."""
        self.late = 0
        """How many tasks register only after slots were closed."""
        self.failures: list[Exception] = []
        """How the next runs end."""
        self._is_over = threading.Event()
        self._failure: Exception | None = None

    @property
    def _jsc(self) -> Any:
        """The context in the JVM."""
        return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: self.is_stopped))

    def setLocalProperty(self, name: str, value: str) -> None:
        self.properties[name] = value

    def setJobGroup(self, group: str, about: str, interruptOnCancel: bool) -> None:
        assert not interruptOnCancel
        self.groups.append(group)
        self.abouts.append(about)

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)
        self.fail(RuntimeError("Job 3 cancelled"))

    def parallelize(self, positions: range, tasks: int) -> Any:
        assert tasks == len(positions)
        return SimpleNamespace(mapPartitions=lambda task: SimpleNamespace(collect=lambda: self._run(positions, task)))

    def emptyRDD(self) -> Any:
        return SimpleNamespace(collect=lambda: self.history.append(self.abouts.pop()))

    def close_slots(self, positions: range) -> None:
        self.closed.append(positions)
        if self.late:
            self.late -= 1
        elif not self.is_deaf:
            self._is_over.set()

    def notify(self) -> None:
        self.notices += 1

    def fail(self, error: Exception) -> None:
        """Let the current run fail."""
        self._failure = error
        self._is_over.set()

    def _run(self, positions: range, task: LaneTask) -> list[Totals]:
        self._is_over.clear()
        self.tasks.append(task)
        self.runs.append(positions)
        if self.failures:
            raise self.failures.pop(0)
        assert self._is_over.wait(PATIENCE_S)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return [Totals(1, 10, 5, 100, 7 << 20) for _ in positions]


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def job(driver: Driver) -> Iterator[LaneJob]:
    there: Any = driver
    made = LaneJob(there, "app", range(2, 5), there, clock=lambda: driver.now)
    yield made
    driver.is_deaf = False
    made.close()


def until(what: str, is_so: Callable[[], bool]) -> None:
    wait_until(what, is_so, PATIENCE_S, every_s=0.005)


def runs(driver: Driver, count: int) -> None:
    until(f"run {count} of the job", lambda: len(driver.runs) == count)


def test_it_has_a_task_for_each_position_in_a_pool_of_its_own(driver: Driver, job: LaneJob) -> None:
    job.start()
    runs(driver, 1)
    assert driver.runs == [range(2, 5)]
    assert driver.tasks == [LaneTask("socket", b"key")]
    assert driver.properties == {"spark.scheduler.pool": "penstock-lanes"}
    assert (driver.groups, driver.abouts) == (["penstock-app-2"], ["penstock app: slots 2-4"])
    assert job.failure is None


def test_closing_lets_its_tasks_end(driver: Driver, job: LaneJob, caplog: pytest.LogCaptureFixture) -> None:
    job.start()
    runs(driver, 1)
    job.note(7)
    job.note(9)
    with caplog.at_level(logging.INFO, module.__name__):
        job.close()
    assert (driver.closed, driver.cancelled, len(driver.runs)) == ([range(2, 5)], [], 1)
    assert job.totals == Totals(3, 30, 15, 300, 7 << 20)
    assert "the lane job of app ended (epochs 7-9): 3 requests, 30 records" in caplog.text
    done = "3 requests, 30 records, 15 rows, 300 bytes, at most 7 MiB in a slot"
    assert driver.history == [f"penstock app: slots 2-4, epochs 7-9: {done}"]


def test_a_job_that_goes_on_although_it_is_closed_is_cancelled(
    driver: Driver, job: LaneJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_END_S", 0.05)
    driver.is_deaf = True
    job.start()
    runs(driver, 1)
    job.close()
    assert driver.cancelled == ["penstock-app-2"]
    until("its thread has ended", lambda: not job._thread.is_alive())
    assert len(driver.runs) == 1


def test_a_task_that_registers_while_it_is_closed_ends_too(driver: Driver, job: LaneJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    driver.late = 2
    job.start()
    runs(driver, 1)
    job.close()
    assert (len(driver.closed), driver.cancelled, len(driver.runs)) == (3, [], 1)


def test_one_that_was_never_started_can_be_closed(driver: Driver, job: LaneJob) -> None:
    job.close()
    assert (driver.runs, driver.cancelled) == ([], [])


def test_after_a_failure_it_is_submitted_again_and_old_slots_are_closed(
    driver: Driver, job: LaneJob, caplog: pytest.LogCaptureFixture
) -> None:
    job.start()
    runs(driver, 1)
    job.note(7)
    driver.fail(RuntimeError("  Job 3 cancelled by somebody\n"))
    runs(driver, 2)
    assert driver.closed == [range(2, 5)]
    assert driver.abouts[-1] == "penstock app: slots 2-4, after epoch 7"
    assert "has failed, and is submitted again: Job 3 cancelled by somebody" in caplog.text
    assert (job.failure, driver.notices, driver.history) == (None, 0, [])
    job.note(8)
    job.close()
    [done] = driver.history
    assert done.startswith("penstock app: slots 2-4, epochs 8-8: 3 requests")  # of the tasks whose figures these are


def test_a_failure_while_it_is_closed_is_none(driver: Driver, job: LaneJob, caplog: pytest.LogCaptureFixture) -> None:
    driver.is_deaf = True
    job.start()
    runs(driver, 1)
    closing = threading.Thread(target=job.close)
    closing.start()
    until("it is closing", lambda: bool(driver.closed))
    driver.fail(RuntimeError("the context was stopped"))
    closing.join(PATIENCE_S)
    assert (len(driver.runs), job.failure, caplog.text) == (1, None, "")


def test_one_that_fails_too_often_is_given_up(driver: Driver, job: LaneJob) -> None:
    driver.failures = [RuntimeError(f"failure {number}") for number in range(9)]
    job.start()
    until("it is given up", lambda: job.failure is not None)
    until("its thread has ended", lambda: not job._thread.is_alive())
    assert str(job.failure) == "The Spark job of the lanes has failed 6 times within 60 s. The last time:\nfailure 5"
    assert (len(driver.runs), driver.notices) == (6, 1)


def test_a_context_that_was_stopped_is_named_at_once(driver: Driver, job: LaneJob, caplog: pytest.LogCaptureFixture) -> None:
    job.start()
    runs(driver, 1)
    driver.is_stopped = True
    driver.fail(RuntimeError("Job 0 cancelled because SparkContext was shut down"))
    until("it is given up", lambda: job.failure is not None)
    until("its thread has ended", lambda: not job._thread.is_alive())
    assert re.match("The Spark context was stopped, .* Start the application again", str(job.failure))
    assert (type(job.failure), len(driver.runs), driver.notices, driver.closed) == (PenstockError, 1, 1, [range(2, 5)])
    assert "is given up: Job 0 cancelled because SparkContext was shut down" in caplog.text


def test_a_jvm_that_dies_is_named_wherever_the_job_meets_it(
    driver: Driver, job: LaneJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("nobody answers")

    job.start()
    runs(driver, 1)
    monkeypatch.setattr(Driver, "_jsc", property(refuse))
    monkeypatch.setattr(driver, "setJobGroup", refuse)
    driver.fail(ConnectionRefusedError("nobody answers"))
    until("its thread has ended", lambda: not job._thread.is_alive())
    assert str(job.failure).startswith("Spark's JVM has ended")
    assert (type(job.failure), driver.notices) == (PenstockError, 1)


def test_an_error_before_the_job_is_submitted_counts_as_its_own(
    driver: Driver, job: LaneJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no names today")

    monkeypatch.setattr(driver, "setJobGroup", refuse)
    job.start()
    until("it is given up", lambda: job.failure is not None)
    assert "failed 6 times within 60 s. The last time:\nno names today" in str(job.failure)


def test_one_that_fails_as_often_but_rarely_is_not(driver: Driver, job: LaneJob) -> None:
    job.start()
    for number in range(1, 9):
        runs(driver, number)
        driver.now += 12.1
        driver.fail(RuntimeError("once more"))
    runs(driver, 9)
    assert job.failure is None


def test_a_task_that_registers_while_it_is_renewed_ends_too(
    driver: Driver, job: LaneJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would keep the old job alive, and get all lanes."""
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    driver.late = 2
    job.start()
    runs(driver, 1)
    job.renew(43)
    runs(driver, 2)
    time.sleep(0.1)
    assert (len(driver.closed), driver.cancelled, len(driver.runs)) == (3, [], 2)


def test_a_task_that_does_not_end_is_cancelled_at_a_renewal_which_is_no_failure(
    driver: Driver, job: LaneJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_END_S", 0.05)
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    driver.is_deaf = True
    job.start()
    for number in range(1, 9):
        runs(driver, number)
        job.renew(number)
    runs(driver, 9)
    assert (driver.cancelled, job.failure) == (["penstock-app-2"] * 8, None)
    assert "the lane job of app has not ended within 0.05 s, and is cancelled" in caplog.text
    assert "has failed" not in caplog.text


def test_one_of_a_later_job_is_named_after_the_epochs_before(driver: Driver) -> None:
    there: Any = driver
    job = LaneJob(there, "app", range(2), there, after=8)
    job.start()
    runs(driver, 1)
    driver.fail(RuntimeError("Job 3 cancelled by somebody"))
    runs(driver, 2)
    job.close()
    assert driver.abouts == ["penstock app: slots 0-1, after epoch 8"] * 2
    assert driver.history[0].startswith("penstock app: slots 0-1, no epoch: ")


def test_a_lease_is_over_after_a_while(driver: Driver, job: LaneJob, caplog: pytest.LogCaptureFixture) -> None:
    job.start()
    runs(driver, 1)
    driver.now += LEASE_S - 1
    assert not job.is_due
    job.note(41)
    job.note(42)
    driver.now += 1
    assert job.is_due
    with caplog.at_level(logging.INFO, module.__name__):
        job.renew(43)
        job.note(43)
        runs(driver, 2)
    assert not job.is_due
    assert driver.closed == [range(2, 5)]
    assert "ended (epochs 41-42)" in caplog.text
    assert driver.abouts == ["penstock app: slots 2-4", "penstock app: slots 2-4, after epoch 42"]
    job.close()
    assert [about.partition(": 3 requests")[0] for about in driver.history] == [
        "penstock app: slots 2-4, epochs 41-42",
        "penstock app: slots 2-4, epochs 43-43",
    ]
    assert job.totals == Totals(6, 60, 30, 600, 7 << 20)
