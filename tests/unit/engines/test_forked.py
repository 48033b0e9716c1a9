"""Forked slots: they end with their engine and with the driver, outlive signals, and are replaced when they are gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.config import Config
from penstock.engines.forked import forking
from penstock.engines.forked.forking import start_ahead
from penstock.engines.forked.slots import ForkedSlots
from penstock.engines.one_host import OneHost
from penstock.engines.port import SlotLostError, TaskFailedError
from penstock.engines.requests import Load
from penstock.epochs.program import Epoch, Program
from penstock.observation import logs
from tests.unit.engines.lending import LentSlots
from tests.unit.engines.programs import Lists, installed, nothing, obedient
from tests.unit.epochs.application import Raw
from verification.harness.processes import ROOT, wait_until

EPOCH = Epoch(0, -1, 0, (("in", 0),), (-1,))


class Started(OneHost):
    """An engine with its slots, by which the processes are found."""

    def __init__(self, program: Program, slots: ForkedSlots) -> None:
        super().__init__(program, slots, 60, "local", "forked processes")
        self.slots = slots


@contextmanager
def started(
    program: Program, size: int = 1, prepare: Callable[[], None] = nothing, heard: Callable[[str], None] = lambda line: None
) -> Iterator[Started]:
    engine = Started(program, ForkedSlots(program, prepare, size, heard))
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def run(engine: OneHost, value: str = "count") -> None:
    records = Lists.of([Raw(b"key", value.encode(), 5)]).records(EPOCH, {("in", 0): (0, 1)})
    assert engine.run(EPOCH, records, is_small=True).num_rows


def family_of(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it has started."""
    return [process, *process.children(recursive=True)]


def forking_process(slots: ForkedSlots) -> psutil.Process:
    assert slots._forking is not None
    return psutil.Process(slots._forking.process.pid)


def have_ended(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return installed(obedient(), tmp_path / "state", 1)


def test_slots_are_there_while_their_engine_is_open_and_none_afterwards(program: Program) -> None:
    with started(program, size=2) as engine:
        run(engine)
        family = family_of(forking_process(engine.slots))
        assert len(family) == 2  # the second slot was not needed yet
    wait_until("all processes have ended", lambda: have_ended(family), 20)


def test_warm_slots_have_loaded_the_program(program: Program, tmp_path: Path) -> None:
    def prepare() -> None:
        (tmp_path / str(os.getpid())).touch()

    with started(program, size=2, prepare=prepare) as engine:
        engine.warm()
        _, *slots = family_of(forking_process(engine.slots))
        assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {str(slot.pid) for slot in slots}
        assert len(slots) == 2
        engine.warm()
        assert family_of(forking_process(engine.slots))[1:] == slots


def test_slots_that_were_never_started_can_be_closed(program: Program) -> None:
    ForkedSlots(program, nothing, 2, lambda line: None).close()


def test_no_process_is_started_while_slots_are_closed(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for a slot sees that the process is gone, as if it had died."""
    monkeypatch.setattr(forking, "_STOP_S", 0.2)
    slots = ForkedSlots(program, nothing, 1, lambda line: None)
    slots.start()
    only = slots._forking
    forking_process(slots).suspend()
    lost: list[SlotLostError] = []

    def ask() -> None:
        with pytest.raises(SlotLostError) as found:
            slots.slot(0)
        lost.append(found.value)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until("it waits for a slot", slots._lock.locked, 20)
    slots.close()
    asking.join(20)
    assert lost
    assert slots._forking is only
    assert only is not None
    assert only.process.returncode is not None


def test_signals_that_end_an_application_do_not_end_its_slots(forked: list[ForkedSlots], program: Program) -> None:
    lent: Any = LentSlots(forked[0], program)
    engine = OneHost(program, lent, 60, "local", "forked processes")
    run(engine)
    family = family_of(forking_process(forked[0]))
    for process in family:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
    engine.warm()
    assert family_of(forking_process(forked[0])) == family


def test_a_dead_forking_process_is_replaced(program: Program) -> None:
    with started(program) as engine:
        run(engine)
        slots = engine.slots
        forking, slot = family_of(forking_process(slots))
        forking.kill()
        forking.wait(20)
        engine.warm()  # the slot does not need it
        slot.kill()
        wait_until("the slot has ended", lambda: have_ended([slot]), 20)
        with pytest.raises(SlotLostError, match="A slot on this host has ended unexpectedly"):
            slots.slot(0).ask(Load())
        with pytest.raises(SlotLostError, match="The process that starts slots has ended unexpectedly"):
            slots.slot(0)
        engine.warm()
        assert forking_process(slots) != forking


def test_slots_end_when_the_driver_is_killed_even_a_busy_one(tmp_path: Path) -> None:
    driver = subprocess.Popen([sys.executable, "-m", "tests.unit.engines.driver", str(tmp_path)], cwd=ROOT)
    try:
        wait_until("a slot is busy", (tmp_path / "busy").exists, 60)
        family = family_of(psutil.Process(driver.pid))
        assert len(family) == 4
    finally:
        driver.kill()
        driver.wait()
    wait_until("all have ended", lambda: have_ended(family), 20)


def test_what_slots_print_and_log_reaches_the_driver(program: Program) -> None:
    heard: list[str] = []
    config = Config.load(environment={}, bootstrap_servers="localhost:9092")
    with started(program, prepare=logs.worker_set_up(config, {"application": "app"}), heard=heard.append) as engine:
        run(engine, "say hello")
        wait_until("both lines are heard", lambda: len(heard) > 1, 20)
    assert heard[0] == "hello"
    line = json.loads(heard[1])
    assert (line["logger"], line["event"], line["application"]) == ("tests.engines", "logged hello", "app")
    assert (line["epoch"], line["lane"]) == (0, 0)


def test_a_slot_that_cannot_be_prepared_says_why(program: Program) -> None:
    def fail() -> None:
        raise RuntimeError("no preparation")

    with started(program, prepare=fail) as engine, pytest.raises(TaskFailedError, match="RuntimeError: no preparation"):
        run(engine)


def test_a_process_started_ahead_is_used_once(program: Program) -> None:
    heard: list[str] = []
    before = psutil.Process().children()
    start_ahead(heard.append)
    start_ahead(heard.append)
    [ahead] = [child for child in psutil.Process().children() if child not in before]
    with started(program, heard=heard.append) as one, started(program, heard=heard.append) as two:
        assert forking_process(one.slots) == ahead
        assert forking_process(two.slots) != ahead
        run(one)
    assert have_ended([ahead])


def test_more_positions_than_slots_share_them(forked: list[ForkedSlots]) -> None:
    assert forked[1].slot(0) is forked[1].slot(2) is not forked[1].slot(1)
    assert (forked[1].size, forked[1].hosts, forked[1].turn(7)) == (2, {"this host": 2}, False)
