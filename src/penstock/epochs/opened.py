"""The open stores of a task: its own lanes for writing, other lanes as of the epoch before, and the global tables.

Each file is opened on first use and stays open until the end of the block: engines can open a file only once per process.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager

from penstock.epochs.assignment import Assignment
from penstock.epochs.global_tables import bring_globals_to
from penstock.epochs.program import Epoch, Program
from penstock.epochs.shards import lane_of, shard_of
from penstock.epochs.state_directory import StateDirectory, lane_as_of, open_globals, open_lane
from penstock.errors import LaneMovedError
from penstock.state import LaneState, ShardState, let_threads_read, memory_engine
from penstock.state.remote.client import clients_of


def require_the_same(state: LaneState, assigned: Assignment) -> None:
    """Refuse a store that the epoch does not continue: a lane may have been on several hosts, and may have late tasks."""
    program, epoch, lane = assigned.program, assigned.epoch, assigned.lane
    if not program.is_spread:
        return
    is_written_by_us = state.head.incarnation == program.incarnation and state.head.attempt <= epoch.attempt.number
    expected = None if epoch.placement.heads is None else epoch.placement.heads.get(lane)
    if not is_written_by_us or expected is None or state.head.write_id_of(epoch.previous) != expected:
        raise LaneMovedError(f"Lane {lane} is at epoch {state.epoch}, which epoch {epoch.number} does not continue.")


@contextmanager
def open_stores(program: Program, epoch: Epoch, own: Collection[int]) -> Iterator[OpenStores]:
    """Provide the stores of an epoch to a task that runs the lanes `own`."""
    if program.is_spread and program.global_stores:
        assert epoch.placement.global_topics is not None
        bring_globals_to(program, epoch.placement.global_topics)
    with open_globals(program) as globals_, ExitStack() as opened:
        yield OpenStores(program, epoch, own, globals_, opened)


class OpenStores:
    """The open stores of a task; further ones are opened on first use."""

    def __init__(
        self, program: Program, epoch: Epoch, own: Collection[int], globals_: LaneState | None, opened: ExitStack
    ) -> None:
        self.globals = globals_
        """The global tables, for reading; None if there are none."""
        self._program = program
        self._epoch = epoch
        self._own = own
        self._opened = opened
        self._lanes: dict[int, LaneState] = {}
        self._before: dict[int, LaneState] = {}
        self._opening = threading.RLock()

    def lane(self, number: int) -> LaneState:
        """Return one of the task's own lanes, for writing."""
        if number not in self._lanes:
            self._lanes[number] = self._opened.enter_context(open_lane(self._program, number, self._epoch.attempt.number))
        return self._lanes[number]

    def lane_now(self, number: int) -> LaneState:
        """Return a lane of another host with what it has now; what is written to it stays in memory."""
        assert self._epoch.placement.servers is not None
        engine = clients_of(self._program.server_key).snapshot(self._epoch.placement.servers[number], number)
        self._opened.callback(engine.close)
        return LaneState(engine)

    def owner_before(self, key: bytes) -> ShardState:
        """Return the shard that owns a key, as of the end of the epoch before, for reading; committed or not.

        Its lane may already have written this epoch, in another process: its undo steps show the values before that. Several
        threads may ask, and read what they get.
        """
        program = self._program
        shard = shard_of(key, program.shards)
        lane = lane_of(shard, program.shards, program.lanes)
        with self._opening:
            if lane not in self._before:
                self._before[lane] = self._lane_before(lane)
                let_threads_read(self._before[lane])
            return self._before[lane].shard(shard)

    def _lane_before(self, lane: int) -> LaneState:
        program, previous = self._program, self._epoch.previous
        if program.is_spread and lane not in self._own:
            return self._remote_lane_before(lane)
        if lane not in self._own:
            directory = StateDirectory(program.directory, program.application_id).lane_directory(lane, program.lanes)
            return self._opened.enter_context(lane_as_of(program, previous, directory))
        return LaneState(memory_engine()) if previous < 0 else self.lane(lane).read_committed(previous)

    def _remote_lane_before(self, lane: int) -> LaneState:
        epoch = self._epoch
        if epoch.previous < 0:
            return LaneState(memory_engine())
        state = self.lane_now(lane)
        require_the_same(state, Assignment(self._program, epoch, lane=lane))
        return state.read_committed(epoch.previous)

    def let_threads_read(self, lane: int | None = None) -> None:
        """Prepare for threads that read a lane of the task, each in shards of its own, and what the task can read besides."""
        if lane is not None:
            let_threads_read(self.lane(lane))
        if self.globals is not None:
            let_threads_read(self.globals)
            self.globals.shard(0)
        self.forget_views()  # those of the lane read it without the others' turns

    def forget_views(self) -> None:
        """Discard the views of the epoch before; call this after each write to a lane, which makes them invalid."""
        self._before.clear()
