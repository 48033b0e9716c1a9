"""Slots that die, hang or fail in an epoch: the dispatcher makes it right in the end, or its error is raised in the driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from penstock.engines.forked.slots import ForkedSlots
from penstock.engines.one_host import OneHost
from penstock.engines.port import TaskFailedError
from penstock.engines.requests import Load
from penstock.epochs.program import Epoch, Program
from penstock.epochs.state_directory import StateDirectory
from penstock.errors import EpochTooLargeError, ProcessingError, StateError
from penstock.records import Partition
from penstock.runtime.input.feed import FedJobs
from penstock.runtime.loop.dispatcher import Dispatcher, Offer
from penstock.runtime.loop.epoch_size import EpochSize
from penstock.runtime.loop.feedback import Feedback
from tests.unit.engines.driving import shown
from tests.unit.engines.lending import LentSlots
from tests.unit.engines.programs import Lists, contents, counted, installed, obedient
from tests.unit.epochs.application import Raw, keys_of_shards
from verification.harness.processes import wait_until

PLACE = ("in", 0)
EPOCH = Epoch(0, -1, 0, (PLACE,), (-1,))
KEYS = keys_of_shards(b"key")


def orders(*values: str) -> Lists:
    """One record for every shard; the first of them have the given values."""
    texts = [*values, *["count"] * (len(KEYS) - len(values))]
    return Lists.of([Raw(key, text.encode(), 5) for key, text in zip(KEYS, texts, strict=True)])


class Application:
    """A dispatcher of epochs, on slots that are lent; records that no epoch can hold are left out."""

    def __init__(
        self, slots: ForkedSlots, program: Program, lists: Lists, is_small: bool = False, patience_s: float = 60.0
    ) -> None:
        lent: Any = LentSlots(slots, program)
        feed: Any = lists
        jobs = FedJobs(OneHost(program, lent, patience_s, "local", "forked processes"), feed)
        size = EpochSize(1_000, 1 << 30)
        self.program = program
        self.left_out: list[tuple[int, str]] = []
        self.dispatcher = Dispatcher(jobs, size, self._leave_out, small=99 * is_small, lanes=2, on_retry=lambda epoch: None)

    def run(self, begin: int = 0, end: int = len(KEYS), epoch: Epoch = EPOCH) -> pa.Table:
        """Run an epoch of records that fit into one."""
        done = self.dispatcher.run(epoch, Offer({PLACE: begin}, {PLACE: end}))
        assert done.ends == {PLACE: end}
        return done.rows

    def contents(self) -> Any:
        """What its lanes have, for the last attempt."""
        return contents(self.program, self.dispatcher.attempt)

    def _leave_out(self, epoch: Epoch, place: Partition, offset: int, error: EpochTooLargeError) -> None:
        self.left_out.append((offset, str(error)))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return installed(obedient(), tmp_path / "state", 2)


@pytest.fixture
def undisturbed(forked: list[ForkedSlots], tmp_path: Path) -> Application:
    """An application of its own, in which nothing goes wrong."""
    return Application(forked[0], installed(obedient(), tmp_path / "undisturbed", 2), orders())


def retries(caplog: pytest.LogCaptureFixture) -> Sequence[str]:
    return [record.message for record in caplog.records if record.message.startswith("retrying epoch 0: ")]


@pytest.mark.parametrize("is_small", [True, False])
def test_a_killed_slot_is_replaced_and_the_epoch_runs_again(
    forked: list[ForkedSlots],
    program: Program,
    undisturbed: Application,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    is_small: bool,
) -> None:
    app = Application(forked[1], program, orders(f"die-once {tmp_path / 'died'}"), is_small)
    assert shown(app.run()) == shown(undisturbed.run())
    assert app.contents() == undisturbed.contents()
    assert len(retries(caplog)) == 1
    assert "A slot on this host has ended unexpectedly" in retries(caplog)[0]


@pytest.mark.parametrize("is_small", [True, False])
def test_what_a_killed_slot_has_counted_counts_once(
    forked: list[ForkedSlots], tmp_path: Path, caplog: pytest.LogCaptureFixture, is_small: bool
) -> None:
    program = installed(counted(), tmp_path / "state", 2)
    found = Application(forked[1], program, orders("count", f"die-once {tmp_path / 'died'}"), is_small).run()
    assert len(retries(caplog)) == 1
    assert sum(numbers[0] for report in Feedback.found_in([found]).metrics for _, _, numbers in report.series) == len(KEYS)


def test_a_record_of_which_slots_always_die_is_given_up_and_only_that_one(
    forked: list[ForkedSlots], program: Program, undisturbed: Application, caplog: pytest.LogCaptureFixture
) -> None:
    app = Application(forked[1], program, orders("die"))
    app.run(0, 1)
    [(offset, reason)] = app.left_out
    assert offset == 0
    assert reason.startswith("The epoch was given up, probably because of its size: A slot on this host has ended unexpectedly")
    assert len(retries(caplog)) == 3
    undisturbed.run(0, 0)
    for each in (app, undisturbed):
        each.run(1, epoch=replace(EPOCH, number=1, previous=0))
    assert app.contents() == undisturbed.contents()


def test_an_epoch_that_takes_too_long_is_too_large_and_its_slot_is_killed(
    forked: list[ForkedSlots], program: Program, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sleeper = tmp_path / "sleeper"
    for position in range(2):
        forked[1].slot(position).ask(Load())  # so that they are running
    app = Application(forked[1], program, orders(f"sleep {sleeper}"), patience_s=4.0)
    app.run(0, 1)
    assert app.left_out == [(0, "The epoch took too long: A slot on this host has not answered in time.")]
    wait_until("the slot has ended", lambda: not _is_running(int(sleeper.read_text())), 20)
    assert retries(caplog) == []
    assert shown(app.run(1, epoch=replace(EPOCH, number=1, previous=0)))


def test_an_error_of_the_users_function_is_raised_with_type_and_text(
    forked: list[ForkedSlots], program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ProcessingError, match=r"(?s)ValueError: no such order.*declared at .*programs\.py"):
        Application(forked[1], program, orders("fail no such order")).run()
    assert retries(caplog) == []


def test_a_users_function_that_exits_is_named(forked: list[ForkedSlots], program: Program) -> None:
    with pytest.raises(ProcessingError, match=r"(?s)in-0 at offset 0 .*sys\.exit\('enough'\).*programs\.py:"):
        Application(forked[1], program, orders("exit enough")).run()


def test_an_error_of_ours_is_raised_at_once(
    forked: list[ForkedSlots], program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StateError, match="A lane is at epoch -1, but epoch 7 follows 6"):
        Application(forked[1], program, orders()).run(epoch=replace(EPOCH, number=7, previous=6))
    assert retries(caplog) == []
    assert "retrying" not in caplog.text


def test_an_unexpected_error_is_retried_then_raised_with_the_slots_traceback(
    forked: list[ForkedSlots], program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    lane = obstructed(program)
    app = Application(forked[1], program, orders())
    with pytest.raises(TaskFailedError, match=r"(?s)^Unexpected failure: .*Traceback.*in open_lane.*Error"):
        app.run()
    assert len(retries(caplog)) == 1
    assert caplog.text.count("rolling epoch 0 back again: Unexpected failure") == 3
    lane.unlink()
    app.dispatcher.roll_back(EPOCH)
    assert shown(app.run())


def test_an_unexpected_error_that_does_not_come_again_does_no_harm(
    forked: list[ForkedSlots], undisturbed: Application, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is full for a moment, for example."""
    lane = obstructed(program)

    class Mending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lane.unlink(missing_ok=True)

    mending = Mending()
    logger = logging.getLogger("penstock.runtime.loop.dispatcher")
    logger.addHandler(mending)
    try:
        found = Application(forked[1], program, orders()).run()
    finally:
        logger.removeHandler(mending)
    assert shown(found) == shown(undisturbed.run())
    assert len(retries(caplog)) == 1


def obstructed(program: Program) -> Path:
    """Put a file where the directory of the second lane would be; return it."""
    lane = StateDirectory(program.directory, program.application_id).lane_directory(1, 2)
    lane.parent.mkdir(parents=True)
    lane.write_text("a file where a directory should be", encoding="ascii")
    return lane


def test_slots_see_how_their_own_processes_end(forked: list[ForkedSlots], program: Program, tmp_path: Path) -> None:
    Application(forked[0], program, orders(f"run {tmp_path / 'status'}"), is_small=True).run()
    assert (tmp_path / "status").read_text() == "3"


def _is_running(process: int) -> bool:
    return bool(psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
