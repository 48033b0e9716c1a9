"""The processes of a pool: they end with the pool and with the driver, outlive signals, and are replaced when they are gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.config import Config
from penstock.epochs.program import Epoch, Program
from penstock.telemetry import logs
from penstock.workers.forking import start_ahead
from penstock.workers.jobs import WorkerJobs
from penstock.workers.pool import TaskFailedError, WorkerLostError, WorkerPool
from penstock.workers.requests import RollBack
from tests.unit.epochs.application import Raw
from tests.unit.workers.programs import LentPool, Lists, installed, nothing, obedient
from verification.harness.processes import ROOT, wait_until

EPOCH = Epoch(0, -1, 0, (("in", 0),), (-1,))


@contextmanager
def started(
    program: Program, size: int = 1, prepare: Callable[[], None] = nothing, heard: Callable[[str], None] = lambda line: None
) -> Iterator[WorkerPool]:
    pool = WorkerPool(program, prepare, size, heard)
    pool.start()
    try:
        yield pool
    finally:
        pool.close()


def run(pool: WorkerPool, program: Program, value: str = "count", epoch: Epoch = EPOCH) -> None:
    jobs = WorkerJobs(pool, program, Lists.of([Raw(b"key", value.encode(), 5)]).between, 60)
    jobs.read_too({"in": 0})
    assert jobs.run(epoch, True, {("in", 0): (0, 1)}, None).num_rows


def family_of(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it has started."""
    return [process, *process.children(recursive=True)]


def forking_process(pool: WorkerPool) -> psutil.Process:
    assert pool._forking is not None
    return psutil.Process(pool._forking.process.pid)


def have_ended(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return installed(obedient(), tmp_path / "state", 1)


def test_a_pool_has_its_workers_while_it_is_open_and_none_afterwards(program: Program) -> None:
    with started(program, size=2) as pool:
        run(pool, program)
        family = family_of(forking_process(pool))
        assert len(family) == 2  # the second worker was not needed yet
    wait_until("all processes have ended", lambda: have_ended(family), 20)


def test_warm_workers_have_loaded_the_program(program: Program, tmp_path: Path) -> None:
    def prepare() -> None:
        (tmp_path / str(os.getpid())).touch()

    with started(program, size=2, prepare=prepare) as pool:
        jobs = WorkerJobs(pool, program, Lists.of([]).between, 60)
        jobs.warm()
        _, *workers = family_of(forking_process(pool))
        assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {str(worker.pid) for worker in workers}
        assert len(workers) == 2
        jobs.warm()
        assert family_of(forking_process(pool))[1:] == workers


def test_a_pool_that_was_never_started_can_be_closed(program: Program) -> None:
    WorkerPool(program, nothing, 2, lambda line: None).close()


def test_signals_that_end_an_application_do_not_end_its_workers(pools: list[WorkerPool], program: Program) -> None:
    lent: Any = LentPool(pools[0], program)
    run(lent, program)
    family = family_of(forking_process(pools[0]))
    for process in family:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
    run(lent, program)
    assert family_of(forking_process(pools[0])) == family


def test_a_dead_forking_process_is_replaced(program: Program) -> None:
    nothing_to_do = [(RollBack(EPOCH, ()), ())]
    with started(program) as pool:
        run(pool, program)
        forking, worker = family_of(forking_process(pool))
        forking.kill()
        forking.wait(20)
        run(pool, program)  # the worker does not need it
        worker.kill()
        wait_until("the worker has ended", lambda: have_ended([worker]), 20)
        with pytest.raises(WorkerLostError, match="A worker process has ended unexpectedly"):
            pool.run(nothing_to_do, 60)
        with pytest.raises(WorkerLostError, match="The process that starts workers has ended unexpectedly"):
            pool.run(nothing_to_do, 60)
        assert pool.run(nothing_to_do, 60) == [[]]
        assert forking_process(pool) != forking


def test_workers_end_when_the_driver_is_killed_even_a_busy_one(tmp_path: Path) -> None:
    driver = subprocess.Popen([sys.executable, "-m", "tests.unit.workers.driver", str(tmp_path)], cwd=ROOT)
    try:
        wait_until("a worker is busy", (tmp_path / "busy").exists, 60)
        family = family_of(psutil.Process(driver.pid))
        assert len(family) == 4
    finally:
        driver.kill()
        driver.wait()
    wait_until("all have ended", lambda: have_ended(family), 20)


def test_what_workers_print_and_log_reaches_the_driver(program: Program) -> None:
    heard: list[str] = []
    config = Config.load(environment={}, bootstrap_servers="localhost:9092")
    with started(program, prepare=logs.worker_set_up(config, {"application": "app"}), heard=heard.append) as pool:
        run(pool, program, "say hello")
        wait_until("both lines are heard", lambda: len(heard) > 1, 20)
    assert heard[0] == "hello"
    line = json.loads(heard[1])
    assert (line["logger"], line["event"], line["application"]) == ("tests.workers", "logged hello", "app")
    assert (line["epoch"], line["lane"]) == (0, 0)


def test_a_worker_that_cannot_be_prepared_says_why(program: Program) -> None:
    def fail() -> None:
        raise RuntimeError("no preparation")

    with started(program, prepare=fail) as pool, pytest.raises(TaskFailedError, match="RuntimeError: no preparation"):
        run(pool, program)


def test_a_process_started_ahead_is_used_once(program: Program) -> None:
    heard: list[str] = []
    before = psutil.Process().children()
    start_ahead(heard.append)
    start_ahead(heard.append)
    [ahead] = [child for child in psutil.Process().children() if child not in before]
    with started(program, heard=heard.append) as one, started(program, heard=heard.append) as two:
        assert forking_process(one) == ahead
        assert forking_process(two) != ahead
        run(one, program)
    assert have_ended([ahead])
