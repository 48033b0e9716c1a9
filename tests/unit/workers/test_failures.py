"""Workers that die, hang or fail in an epoch: it is right in the end, or its error is raised in the driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from penstock.epochs.home import Home
from penstock.epochs.program import Epoch, Program
from penstock.errors import EpochTooLargeError, ProcessingError, StateError
from penstock.runtime.feedback import Feedback
from penstock.workers.jobs import WorkerJobs
from penstock.workers.pool import TaskFailedError, WorkerPool
from tests.unit.epochs.application import Raw, keys_of_shards
from tests.unit.workers.programs import Lists, contents, counted, installed, obedient
from tests.unit.workers.test_jobs import jobs_of, shown
from verification.harness.processes import wait_until

EPOCH = Epoch(0, -1, 0, (("in", 0),), (-1,))
KEYS = keys_of_shards(b"key")


def orders(*values: str) -> Lists:
    """One record for every shard; the first of them have the given values."""
    texts = [*values, *["count"] * (len(KEYS) - len(values))]
    return Lists.of([Raw(key, text.encode(), 5) for key, text in zip(KEYS, texts, strict=True)])


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return installed(obedient(), tmp_path / "state", 2)


def run(jobs: WorkerJobs, is_small: bool = False, epoch: Epoch = EPOCH) -> pa.Table:
    return jobs.run(epoch, is_small, {("in", 0): (0, len(KEYS))}, None)


def retries(caplog: pytest.LogCaptureFixture) -> Sequence[str]:
    return [record.message for record in caplog.records if record.message.startswith("retrying a part of the epoch")]


@pytest.mark.parametrize("is_small", [True, False])
def test_a_killed_worker_is_replaced_and_its_part_runs_again(
    pools: list[WorkerPool], program: Program, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_small: bool
) -> None:
    undisturbed = installed(obedient(), tmp_path / "undisturbed", 2)
    expected = run(jobs_of(pools[0], undisturbed, orders()), is_small)
    found = run(jobs_of(pools[1], program, orders(f"die-once {tmp_path / 'died'}")), is_small)
    assert shown(found) == shown(expected)
    assert contents(program) == contents(undisturbed)
    assert len(retries(caplog)) == 1
    assert "A worker process has ended unexpectedly" in retries(caplog)[0]


@pytest.mark.parametrize("is_small", [True, False])
def test_what_a_killed_worker_has_counted_counts_once(
    pools: list[WorkerPool], tmp_path: Path, caplog: pytest.LogCaptureFixture, is_small: bool
) -> None:
    program = installed(counted(), tmp_path / "state", 2)
    found = run(jobs_of(pools[1], program, orders("count", f"die-once {tmp_path / 'died'}")), is_small)
    assert len(retries(caplog)) == 1
    assert sum(numbers[0] for report in Feedback.found_in([found]).metrics for _, _, numbers in report.series) == len(KEYS)


def test_an_epoch_whose_worker_always_dies_is_too_large(
    pools: list[WorkerPool], program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(EpochTooLargeError, match="given up, probably because of its size: A worker process has ended"):
        run(jobs_of(pools[1], program, orders("die")))
    assert len(retries(caplog)) == 3
    jobs = jobs_of(pools[1], program, orders())
    jobs.roll_back(replace(EPOCH, attempt=1))
    assert shown(run(jobs, epoch=replace(EPOCH, attempt=1)))


def test_an_epoch_that_takes_too_long_is_too_large_and_its_worker_is_killed(
    pools: list[WorkerPool], program: Program, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sleeper = tmp_path / "sleeper"
    jobs_of(pools[1], program, orders(), patience_s=60).roll_back(EPOCH)  # so that the worker is running
    jobs = jobs_of(pools[1], program, orders(f"sleep {sleeper}"), patience_s=4.0)
    with pytest.raises(EpochTooLargeError, match=r"The epoch took more than 4 s\."):
        run(jobs)
    wait_until("the worker has ended", lambda: not _is_running(int(sleeper.read_text())), 20)
    assert retries(caplog) == []
    again = jobs_of(pools[1], program, orders())
    again.roll_back(replace(EPOCH, attempt=1))
    assert shown(run(again, epoch=replace(EPOCH, attempt=1)))


def test_an_error_of_the_users_function_is_raised_with_type_and_text(
    pools: list[WorkerPool], program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ProcessingError, match=r"(?s)ValueError: no such order.*declared at .*programs\.py"):
        run(jobs_of(pools[1], program, orders("fail no such order")))
    assert retries(caplog) == []


def test_a_users_function_that_exits_is_named(pools: list[WorkerPool], program: Program) -> None:
    with pytest.raises(TaskFailedError, match=r"(?s)^Unexpected failure: .*programs\.py.*SystemExit: enough"):
        run(jobs_of(pools[1], program, orders("exit enough")))


def test_an_error_of_ours_is_raised_at_once(pools: list[WorkerPool], program: Program, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StateError, match="A lane is at epoch -1, but epoch 7 follows 6"):
        run(jobs_of(pools[1], program, orders()), epoch=replace(EPOCH, number=7, previous=6))
    assert retries(caplog) == []


def test_an_unexpected_error_is_retried_then_raised_with_the_workers_traceback(
    pools: list[WorkerPool], program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    lane = Home(program.directory, program.application_id).lane_directory(1, 2)
    lane.parent.mkdir(parents=True)
    lane.write_text("a file where a directory should be", encoding="ascii")
    jobs = jobs_of(pools[1], program, orders())
    with pytest.raises(TaskFailedError, match=r"(?s)^Unexpected failure: .*Traceback.*in open_lane.*Error"):
        run(jobs)
    assert len(retries(caplog)) == 3
    lane.unlink()
    assert shown(run(jobs))


def test_an_unexpected_error_that_does_not_come_again_does_no_harm(
    pools: list[WorkerPool], tmp_path: Path, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is full for a moment, for example."""
    lane = Home(program.directory, program.application_id).lane_directory(1, 2)
    lane.parent.mkdir(parents=True)
    lane.write_text("a file where a directory should be", encoding="ascii")

    class Mending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lane.unlink(missing_ok=True)

    mending = Mending()
    logger = logging.getLogger("penstock.workers.jobs")
    logger.addHandler(mending)
    try:
        found = run(jobs_of(pools[1], program, orders()))
    finally:
        logger.removeHandler(mending)
    undisturbed = installed(obedient(), tmp_path / "undisturbed", 2)
    assert shown(found) == shown(run(jobs_of(pools[0], undisturbed, orders()), is_small=True))
    assert len(retries(caplog)) == 1


def test_workers_see_how_their_own_processes_end(pools: list[WorkerPool], program: Program, tmp_path: Path) -> None:
    run(jobs_of(pools[0], program, orders(f"run {tmp_path / 'status'}")), is_small=True)
    assert (tmp_path / "status").read_text() == "3"


def _is_running(process: int) -> bool:
    return bool(psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
