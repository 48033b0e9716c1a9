"""What all engines have in common: rows of an epoch, roll-backs, restores and snapshots are those of a single process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.exchanging import Exchanging
from penstock.engines.many_hosts import ManyHosts
from penstock.engines.port import SlotLostError, TaskFailedError
from penstock.engines.requests import RunStep
from penstock.epochs.program import has_lanes
from penstock.epochs.walk import Step, walk_of
from penstock.epochs.wire import OUT
from penstock.errors import FencedError, LaneMovedError
from penstock.spark import lane_job
from penstock.state import LaneState
from tests.unit.engines.comparing import Engines
from tests.unit.engines.driving import CUTS, PARTITIONS, Driven, shown, told
from tests.unit.engines.programs import TOPOLOGIES
from tests.unit.engines.written import expected, taken_from

SLOTS = ("forked", "tasks", "hosts")


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize(("engine", "lanes"), [("one slot", 2), ("forked", 1), ("forked", 4), ("tasks", 2), ("hosts", 3)])
def test_an_epoch_gives_what_one_process_gives(engines: Engines, engine: str, name: str, lanes: int) -> None:
    reference = engines.driven("one process", name, lanes)
    small, large, reading = (engines.driven(engine, name, lanes) for _ in range(3))
    for ends in [*CUTS, CUTS[-1]]:  # the last one is without records
        progress = reference.progress
        rows = reference.step(ends)
        for driven, run in ((small, partial(small.run, is_small=True)), (large, large.run), (reading, reading.read)):
            found = run(ends)
            driven.commit(found, ends)
            assert found.schema == OUT
            assert shown(found) == shown(rows)
            assert told(found, progress) == told(rows, progress)
            assert driven.contents() == reference.contents()


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("reads", [False, True])
def test_executors_write_what_the_driver_would_have_written(engines: Engines, name: str, reads: bool, tmp_path: Path) -> None:
    (written := tmp_path / "written").mkdir()
    reference, driven = engines.driven("one process", name, 3), engines.driven("hosts", name, 3, written)
    for ends in CUTS:
        progress = reference.progress
        rows = reference.step(ends)
        epoch = replace(driven.next_epoch(), partitions=dict.fromkeys(driven.program.topics, PARTITIONS))
        left = driven.read(ends, epoch) if reads else driven.run(ends, epoch=epoch)
        assert taken_from(written) == expected(driven.program, rows, epoch.partitions or {})
        assert told(left, progress) == told(rows, progress)
        assert shown(left) == []
        driven.go_on(left, ends)
        assert driven.contents() == reference.contents()


def test_slots_may_be_renewed_between_epochs(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, driven = (engines.driven(each, "re-keyed", 2) for each in ("one process", "tasks"))
    monkeypatch.setattr(lane_job, "LEASE_S", 0.0)
    assert driven.slots is not None
    for ends in CUTS:
        before = driven.slots.slots
        assert shown(driven.step(ends)) == shown(reference.step(ends))
        assert set(driven.slots.slots).isdisjoint(before)


def dying_in(step: Step, task: int) -> Callable[[Any], bool]:
    return lambda request: isinstance(request, RunStep) and (request.step, request.task) == (step, task)


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("engine", SLOTS)
def test_after_a_slot_has_died_in_any_step_the_epoch_runs_again(engines: Engines, engine: str, name: str) -> None:
    reference, driven = (engines.driven(each, name, 2) for each in ("one process", engine))
    for each in (reference, driven):
        each.step(CUTS[0])
    before = driven.contents()
    assert driven.slots is not None
    for step, when in product(walk_of(driven.program), ("before", "after")):
        driven.slots.die_of(dying_in(step, task=1), when)
        with pytest.raises((SlotLostError, LaneMovedError)):
            driven.run(CUTS[1])
        assert set(driven.epochs()) <= {0, 1}
        recover(driven)
        assert driven.contents() == before
    if driven.engine.server_of is not None:
        reference.place()  # as the lanes on hosts: one that was restored has forgotten what it has told the driver
    assert shown(driven.step(CUTS[1])) == shown(reference.step(CUTS[1]))
    assert driven.contents() == reference.contents()


def recover(driven: Driven) -> None:
    """What the driver does when a slot was lost: lanes go on here, or have to be placed again."""
    if isinstance(driven.engine, ManyHosts):
        driven.attempt += 1
        driven.place()
    else:
        driven.roll_back()


def dying_in_walk(step: Step) -> Callable[[Any], bool]:
    def matches(request: Any) -> bool:
        if not isinstance(request, Exchanging) or not isinstance(request.request, RunStep):
            return False
        return (request.request.step, request.task) == (step, 1)

    return matches


@pytest.mark.parametrize(("engine", "name"), [("forked", "re-keyed"), ("tasks", "atomic"), ("hosts", "by watermark")])
def test_after_a_slot_that_reads_has_died_in_any_step_the_epoch_runs_again(engines: Engines, engine: str, name: str) -> None:
    reference, driven = (engines.driven(each, name, 2) for each in ("one process", engine))
    for each in (reference, driven):
        each.step(CUTS[0])
    before = driven.contents()
    assert driven.slots is not None
    for step, when in product(walk_of(driven.program, has_entry=True), ("before", "after")):
        driven.slots.die_of(dying_in_walk(step), when)
        with pytest.raises((SlotLostError, LaneMovedError, TaskFailedError)):
            driven.read(CUTS[1])
        assert set(driven.epochs()) <= {0, 1}
        recover(driven)
        assert driven.contents() == before
    if driven.engine.server_of is not None:
        reference.place()
    rows = driven.read(CUTS[1])
    driven.commit(rows, CUTS[1])
    assert shown(rows) == shown(reference.step(CUTS[1]))
    assert driven.contents() == reference.contents()


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("engine", ["one process", *SLOTS])
def test_an_attempt_is_rolled_back_and_may_not_come_again(engines: Engines, engine: str, name: str) -> None:
    reference, driven = (engines.driven(each, name, 2) for each in ("one process", engine))
    for each in (reference, driven):
        each.step(CUTS[0])
    before, late = driven.contents(), driven.next_epoch()
    driven.run({("in", 0): 30, ("in", 1): 30, ("in", 2): 9})
    if has_lanes(driven.program):
        assert driven.epochs() == [1, 1]
    driven.roll_back()
    assert driven.contents() == before
    if has_lanes(driven.program):
        with pytest.raises((FencedError, LaneMovedError)):
            driven.run(CUTS[1], epoch=late)
        assert driven.contents() == before
    assert shown(driven.step(CUTS[1])) == shown(reference.step(CUTS[1]))
    assert driven.contents() == reference.contents()


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("engine", ["one process", *SLOTS])
def test_lanes_are_placed_again_whatever_is_left_of_them(engines: Engines, engine: str, name: str) -> None:
    reference, driven = (engines.driven(each, name, 2) for each in ("one process", engine))
    for each in (reference, driven):
        each.step(CUTS[0])
    driven.run(CUTS[1])  # and is not committed
    reference.place()  # a lane that was restored has forgotten what it has told the driver
    for distrusted in ((), (1,), (0, 1)):
        found = {lane.lane: lane.found for lane in driven.place(distrusted)}
        assert driven.contents() == reference.contents()
        if has_lanes(driven.program):
            assert [found[lane] == "rebuilt" for lane in range(2)] == [lane in distrusted for lane in range(2)]
    assert shown(driven.step(CUTS[1])) == shown(reference.step(CUTS[1]))


@pytest.mark.parametrize("name", [name for name in TOPOLOGIES if name not in {"stateless", "clocked"}])
@pytest.mark.parametrize("engine", SLOTS)
def test_a_snapshot_shows_what_is_committed_while_lanes_are_ahead(engines: Engines, engine: str, name: str) -> None:
    reference, driven = (engines.driven(each, name, 2) for each in ("one process", engine))
    for each in (reference, driven):
        each.step(CUTS[0])
    committed = reference.contents()
    driven.committed = 0
    with ExitStack() as opened:
        lanes = driven.snapshots(opened)
        snapshots = [[lane.take() for lane in lanes]]
        for _ in range(2):  # then two epochs are in flight
            driven.go_on(driven.run(CUTS[1]), CUTS[1])
            snapshots.append([lane.take() for lane in lanes])
        for taken in snapshots:
            assert driven.seen(LaneState(each).read_committed(0) for each in taken) == committed
        reference.step(CUTS[1])
        assert reference.contents() != committed
        assert driven.seen(LaneState(each).read_committed(1) for each in snapshots[-1]) == reference.contents()
        for snapshot in snapshots[0] + snapshots[1] + snapshots[2]:
            snapshot.close()
