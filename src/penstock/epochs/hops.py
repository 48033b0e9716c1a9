"""The hops of an epoch: from the topics to the first lanes, and from stage to stage; each takes a table and returns one.

They run in slots, one hop per request, or one after the other in a single process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
from structlog.contextvars import bound_contextvars

from penstock import faults
from penstock.epochs.assignment import Assignment
from penstock.epochs.due import is_due, note_due, was_due
from penstock.epochs.opened import OpenStores, open_stores, require_the_same
from penstock.epochs.output import ANY_SHARD, rows_of_changes
from penstock.epochs.program import Epoch, Program
from penstock.epochs.serial import AllLanes
from penstock.epochs.shards import shards_of
from penstock.epochs.stage_run import StageRun, Walked
from penstock.epochs.state_directory import open_lane
from penstock.epochs.stays import Stay, pace_of, staying
from penstock.epochs.wire import Kind, in_order_of_stages, wire
from penstock.errors import StateError
from penstock.lanes.epoch import HEADERS
from penstock.state import LaneState, Mark, memory_engine

INPUT = pa.schema(
    [
        pa.field("name", pa.int16()),
        pa.field("origin", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""Records as read from topics: the source and the origin by their codes, the rest as in Kafka."""

ROUTED_INPUT = pa.schema([*INPUT, pa.field("shard", pa.int32())])
"""The same with the shard of each record, if it is known already."""


def from_topics(batches: Sequence[pa.RecordBatch], schema: pa.Schema = INPUT) -> pa.Table:
    """Return records as read from topics as rows for a stage."""
    table = pa.Table.from_batches(batches, schema)
    columns = {name: table.column(name) for name in schema.names}
    return wire(table.num_rows, kind=np.zeros(table.num_rows, np.int8), **columns)


def run_stage(assigned: Assignment, table: pa.Table) -> pa.Table:
    """Run a stage's records through one lane, with stores opened for that time."""
    own = range(assigned.program.lanes) if assigned.is_serial else (assigned.lane,)
    with open_stores(assigned.program, assigned.epoch, own) as stores:
        return run_stage_on(stores, assigned, table)


def run_stage_on(stores: OpenStores, assigned: Assignment, table: pa.Table, is_anew: bool = False) -> pa.Table:
    """Run a stage's records through one lane; other rows pass through unchanged, before the lane's output.

    `is_anew` says that all later stages will run again, too: everything written of the epoch is rolled back.
    """
    mine, passing = split(assigned, table)
    if assigned.program.serial_exchanges:
        passing = in_order_of_stages(passing)
    if not assigned.needs_lanes:
        return pa.concat_tables([passing, *_run_free(stores, assigned, mine)])
    run = _run_serially if assigned.is_serial else _run_on
    with bound_contextvars(lane=assigned.lane):
        return pa.concat_tables([passing, *run(stores, assigned, mine, is_anew)])


def bring_to(state: LaneState, epoch: Epoch, stage: int, is_anew: bool = False) -> None:
    """Bring the lane to the state that the stage needs: the epoch before, and what earlier stages wrote of this one.

    A retried task rolls back what its first attempt wrote, but never a later epoch: a late task must not destroy what has
    followed it. After a commit that failed, `roll_back_lane` comes first.
    """
    last = state.reached[1] if state.epoch == epoch.number else -1
    if last > stage and not is_anew:
        raise StateError(f"Stage {stage} of epoch {epoch.number} cannot run again after stage {last}. Start again.")
    if last >= stage:
        _roll_back(state, epoch, stage)
    _require(state, epoch, epoch.previous, epoch.number)


def roll_back_lane(assigned: Assignment) -> None:
    """Roll a lane back to the epoch before, after a job or a commit that failed, and with it all epochs in flight since then."""
    epoch, lane = assigned.epoch, assigned.lane
    with bound_contextvars(lane=lane), open_lane(assigned.program, lane, epoch.attempt.number) as state:
        require_the_same(state, assigned)
        if state.earliest <= epoch.previous < state.epoch:
            _roll_back(state, epoch)
        _require(state, epoch, epoch.previous)
        if assigned.program.is_spread:
            state.stamp(epoch.attempt.number)


def _roll_back(state: LaneState, epoch: Epoch, stage: int = 0) -> None:
    faults.point("lane.before_roll_back")
    state.roll_back(epoch.number, stage)


def _require(state: LaneState, epoch: Epoch, *accepted: int) -> None:
    if state.epoch not in accepted:
        raise StateError(
            f"A lane is at epoch {state.epoch}, but epoch {epoch.number} follows {epoch.previous}. Start again to restore it."
        )


def own_mark(program: Program, lane: int, mark: Mark | None) -> Mark | None:
    """Return the part of a mark for the lane's own changelog partitions."""
    if mark is None:
        return None
    own = shards_of(lane, program.shards, program.lanes)
    offsets = {place: offset for place, offset in mark.offsets.items() if int(place.rpartition("/")[2]) in own}
    return Mark(mark.epoch, mark.time_ms, offsets, mark.topic_ids)


def _run_free(stores: OpenStores, assigned: Assignment, records: pa.Table) -> list[pa.Table]:
    """Run a stage without state, on no particular lane: all records in their order, or by shard if its code waits."""
    run = StageRun(assigned, stores.globals)
    run.arrive(records, in_shards=False)
    pace = pace_of(assigned.program)
    if not pace.computes(assigned.stage) and records.num_rows:
        run.divide()
    for walked in pace.walked(assigned.stage, list(run.arrived) or [ANY_SHARD], _Free(stores, assigned, run)):
        run.take(walked)
    run.flush()
    return run.end()


class _Free:
    """The shards of a stage without state."""

    def __init__(self, stores: OpenStores, assigned: Assignment, run: StageRun) -> None:
        self._stores = stores
        self._watermark = assigned.epoch.watermark
        self._run = run

    def walk(self, shard: int) -> Iterator[Walked]:
        return self._walk(shard, apart=False)

    def walk_apart(self, shard: int) -> Iterator[Walked]:
        return self._walk(shard, apart=True)

    def _walk(self, shard: int, *, apart: bool) -> Iterator[Walked]:
        return self._run.walk(shard, LaneState(memory_engine()).shard(0), self._watermark, None, apart)

    def settle(self, shard: int, thread: int | None) -> None:
        """Nothing of the user's stays in a stage without state."""

    def share(self) -> None:
        self._stores.let_threads_read()


def _run_on(stores: OpenStores, assigned: Assignment, records: pa.Table, is_anew: bool) -> list[pa.Table]:
    """Run a stage on the lane of its records, shard by shard."""
    epoch, stage = assigned.epoch, assigned.stage
    state = stores.lane(assigned.lane)
    require_the_same(state, assigned)
    bring_to(state, epoch, stage, is_anew)
    with staying(assigned, state, stores.globals) as stay:
        return _run_staying(stores, assigned, records, state, stay)


def _run_staying(stores: OpenStores, assigned: Assignment, records: pa.Table, state: LaneState, stay: Stay) -> list[pa.Table]:
    """Run a stage with the user's processors that stay in the lane."""
    epoch, stage = assigned.epoch, assigned.stage
    run = StageRun(assigned, stores.globals, stores.owner_before, stay)
    run.arrive(records)
    waits = assigned.program.may_wait(stage)
    awake = [shard for shard in assigned.shards if shard in run.arrived or (waits and is_due(state.shard(shard), stage, epoch))]
    for walked in pace_of(assigned.program, assigned.lane).walked(stage, awake, _OfLane(stores, assigned, run, state, stay)):
        run.take(walked)
    run.flush()
    if waits:
        for shard, bound in run.bound.items():
            note_due(state.shard(shard), stage, bound.clocks)
        run.due = was_due(state, assigned.shards, stage)
    faults.point("lane.before_write")
    is_idle = not run.bound and state.epoch == epoch.number  # and an earlier stage has brought the lane to this epoch
    written = [] if is_idle else write_lane(assigned, state)
    stores.forget_views()
    faults.point("lane.after_write")
    return [*run.end(state), *written]


class _OfLane:
    """The shards of a lane in a stage."""

    def __init__(self, stores: OpenStores, assigned: Assignment, run: StageRun, state: LaneState, stay: Stay) -> None:
        epoch = assigned.epoch
        self._stores = stores
        self._lane = assigned.lane
        self._run = run
        self._state = state
        self._stay = stay
        self._watermark = epoch.watermark
        self._before = None if epoch.watermark is None else epoch.watermark_before

    def walk(self, shard: int) -> Iterator[Walked]:
        return self._walk(shard, apart=False)

    def walk_apart(self, shard: int) -> Iterator[Walked]:
        return self._walk(shard, apart=True)

    def _walk(self, shard: int, *, apart: bool) -> Iterator[Walked]:
        return self._run.walk(shard, self._state.shard(shard), self._before, self._watermark, apart)

    def settle(self, shard: int, thread: int | None) -> None:
        self._state.shard(shard)  # here, because threads must not open them at the same time
        self._stay.settle(shard, thread)

    def share(self) -> None:
        self._stores.let_threads_read(self._lane)


def _run_serially(stores: OpenStores, assigned: Assignment, records: pa.Table, is_anew: bool) -> list[pa.Table]:
    """Run an atomic section: the first lane's task works on the stores of all lanes, and the other tasks do nothing.

    Without records nothing is written, unless no earlier stage has brought the lanes to this epoch.
    """
    program, epoch, stage = assigned.program, assigned.epoch, assigned.stage
    if assigned.lane != 0 or (not records.num_rows and any(program.needs_lanes(earlier) for earlier in range(stage))):
        return []
    states = [stores.lane(number) for number in range(program.lanes)]
    with ExitStack() as stays:
        for number, state in enumerate(states):
            require_the_same(state, assigned.at(stage, number))
            bring_to(state, epoch, stage, is_anew)
            stays.enter_context(staying(assigned.at(stage, number), state))
        run = StageRun(assigned, stores.globals)
        run.arrive(records, in_shards=False)
        for walked in run.walk(ANY_SHARD, AllLanes(assigned, states), epoch.watermark, None, apart=False):
            run.take(walked)
        run.flush()
        faults.point("serial.before_write")
        written: list[pa.Table] = []
        for number, state in enumerate(states):
            if state.is_written or state.epoch != epoch.number:
                written += write_lane(assigned.at(stage, number), state)
            if number < program.lanes - 1:
                faults.point("serial.between_lanes")
        stores.forget_views()
        return [*run.end(), *written]


def write_lane(assigned: Assignment, state: LaneState) -> list[pa.Table]:
    """Write the changes of a stage to its lane, and return the changelog rows."""
    program, epoch = assigned.program, assigned.epoch
    mark = own_mark(program, assigned.lane, epoch.mark)
    changes = state.commit(epoch.number, assigned.stage, program.incarnation, mark, epoch.last_committed, epoch.attempt.number)
    rows = rows_of_changes(assigned, changes)
    return [] if rows is None else [rows]


def split(assigned: Assignment, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the records of a stage, and all other rows."""
    mine = table.column("kind").to_numpy() == Kind.RECORD
    records = np.flatnonzero(mine)
    sources = table.column("name").to_numpy()[records].astype(np.int16)  # floats if other rows have no name
    mine[records] = np.array(assigned.program.depths)[sources] == assigned.stage
    if mine.all():
        return table, table.slice(0, 0)
    if not mine.any():
        return table.slice(0, 0), table
    return table.filter(pa.array(mine)), table.filter(pa.array(~mine))
