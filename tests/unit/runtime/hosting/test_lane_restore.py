"""When lanes have moved, they are restored to what this start has committed last: all of it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from penstock.history.progress import Progress
from penstock.observation import Recorder
from penstock.records import Partition
from penstock.runtime.hosting.lane_restore import LaneRestore
from tests.unit.engines.programs import re_keyed, stateless
from tests.unit.epochs.application import program_of

CHANGELOG = ("app-totals-changelog", 0)


class World:
    """A cluster just after a commit that executors have written: its end is not noted yet, and another transaction is open."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.placed: list[Any] = []
        self.changelogs = [CHANGELOG]

    def abandon(self) -> None:
        self.did.append("abandon")

    def begin_offsets(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        return dict.fromkeys(partitions, 5)

    def settled_ends(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        self.did.append("settled")
        return dict.fromkeys(partitions, 10)

    def identities(self, names: Iterable[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, "id")

    def place(self, committed: Any, *rest: Any) -> list[Any]:
        self.placed.append(committed)
        return []


@pytest.fixture
def world() -> World:
    return World()


def restore_of(world: Any, *, is_spread: bool = True) -> LaneRestore:
    program = replace(program_of(re_keyed(), 2), is_spread=is_spread)
    return LaneRestore(program, world, world, world, lambda positions, ends: [], world.abandon, Recorder())


def test_moved_lanes_get_the_last_commit_although_brokers_have_not_noted_its_end_yet(world: World) -> None:
    restore = restore_of(world).anew
    assert restore is not None
    restore(Progress(7, {}, {}, heads={0: "head"}), 3)
    (committed,) = world.placed
    assert committed.ends == {"app-totals-changelog/0": 10}
    assert (committed.epoch, committed.attempt, committed.heads) == (7, 3, {0: "head"})


def test_the_open_transaction_is_aborted_first_because_the_log_ends_only_after_it(world: World) -> None:
    restore = restore_of(world).anew
    assert restore is not None
    restore(Progress(7, {}, {}), 3)
    assert world.did == ["abandon", "settled"]


def test_on_one_machine_lanes_stay_where_they_are(world: World) -> None:
    assert restore_of(world, is_spread=False).anew is None


def test_without_lanes_nothing_is_restored(world: World) -> None:
    program = replace(program_of(stateless(), 4), is_spread=True)
    fake: Any = world
    LaneRestore(program, fake, fake, fake, lambda positions, ends: [], world.abandon, Recorder()).run(fake)
    assert world.placed == []
