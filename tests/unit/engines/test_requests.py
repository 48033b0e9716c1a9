"""What the driver requests of a slot, run here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from penstock.engines import requests as module
from penstock.engines.requests import EndProcess, Load, Migrate, RestoreLane, RollBack, RunEpoch, RunStep
from penstock.epochs.program import Epoch, Program
from penstock.epochs.restore import Restored
from penstock.epochs.state_directory import open_lane
from penstock.epochs.walk import walk_of
from penstock.epochs.wire import WIRE
from tests.unit.engines.driving import INPUTS, PARTITIONS
from tests.unit.engines.programs import installed, re_keyed
from tests.unit.epochs.application import Application
from tests.unit.epochs.spread import KEY

EPOCH = Epoch(0, -1, 5_000, tuple(INPUTS.topics), (-1,) * PARTITIONS)
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return installed(re_keyed(), tmp_path, 3)


def epochs(program: Program) -> list[int]:
    found = []
    for lane in range(program.lanes):
        with open_lane(program, lane) as state:
            found.append(state.epoch)
    return found


def test_lanes_are_rolled_back_by_the_slots_that_have_them(program: Program) -> None:
    list(RunEpoch(EPOCH).run(program, INPUTS.records(EPOCH, {("in", 0): (0, 9)})))
    assert list(RollBack(EPOCH, (0, 2)).run(program, [])) == []
    assert epochs(program) == [-1, 0, -1]


def test_lanes_are_migrated_by_the_slots_that_have_them(program: Program) -> None:
    found = Migrate(EPOCH, lambda assigned: pa.table({"lane": [assigned.lane]}), (0, 2)).run(program, [])
    assert pa.Table.from_batches(found).to_pylist() == [{"lane": 0}, {"lane": 2}]


def test_to_load_the_program_does_nothing_else(program: Program) -> None:
    assert list(Load().run(program, [])) == []
    assert epochs(program) == [-1] * 3


def test_records_of_topics_are_those_of_first_steps(program: Program) -> None:
    steps = walk_of(program)
    assert [RunStep(EPOCH, step, 0).reads_topics for step in steps] == [True, False, False]
    assert RunEpoch(EPOCH).reads_topics
    entered = list(RunStep(EPOCH, steps[0], 0).run(program, INPUTS.records(EPOCH, {("in", 0): (0, 9)})))
    assert entered[0].schema.equals(WIRE)


@pytest.mark.parametrize("host", ["", "10.0.0.7"])
def test_on_a_cluster_a_restored_lane_has_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    app = Application(tmp_path)
    app.start(2)
    program = replace(app.running, is_spread=bool(host), server_key=KEY)
    monkeypatch.setattr(module, "server_of", lambda program, host: {"10.0.0.7": 7_001}[host])
    content = RestoreLane(1, app.committed(), app.topics.read, host=host).restore(program, lambda left: None)
    restored = Restored(*msgspec.msgpack.decode(content))
    assert (restored.lane, restored.port) == (1, 7_001 if host else 0)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")
def test_only_a_slot_of_this_host_is_ended(program: Program) -> None:
    """Not another process that has got its number since."""
    with (
        subprocess.Popen([sys.executable, "-c", SLEEP, "penstock.spark.daemon"]) as slot,
        subprocess.Popen([sys.executable, "-c", SLEEP]) as other,
    ):
        for process in (slot, other):
            assert list(EndProcess(process.pid).run(program, [])) == []
        assert slot.wait(20) < 0
        assert other.poll() is None
        other.kill()
    list(EndProcess(slot.pid).run(program, []))  # it has ended
