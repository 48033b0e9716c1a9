"""The hops of an epoch: from the topics to the first lanes, and from stage to stage; each takes a table and returns one.

They run in slots, one hop per request, or one after the other in a single process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
from structlog.contextvars import bound_contextvars

from penstock import faults
from penstock.epochs.assignment import Assignment
from penstock.epochs.callers import callers_of
from penstock.epochs.due import is_due, note_due, was_due
from penstock.epochs.home import open_lane
from penstock.epochs.lane_reports import Watch
from penstock.epochs.opened import OpenStores, open_stores, require_the_same
from penstock.epochs.output import ANY_SHARD, NO_RECORDS, RECORDS_BY_SHARD, Output, rows_of_changes
from penstock.epochs.program import Epoch, Program
from penstock.epochs.serial import AllLanes
from penstock.epochs.shards import shard_of, shards_of
from penstock.epochs.stays import Stay, staying
from penstock.epochs.wire import (
    Control,
    Kind,
    LaneReport,
    in_order_of_stages,
    rows_about,
    wire,
)
from penstock.errors import StateError
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.epoch import HEADERS, Values, feed, processing_order, read_all
from penstock.lanes.failures import FailurePolicy
from penstock.lanes.gathering import are_many
from penstock.lanes.lane import Lane, Surroundings, flush
from penstock.lanes.stores import OwnShard
from penstock.lanes.traces import Traces
from penstock.metrics import combined
from penstock.state import LaneState, Mark, ShardState, StateOfStores, memory_engine

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

_WIRE_NAME = {"source": "name"}

_PIECE = 4_000
"""How many records of a shard are decoded and processed at a time: with more, they no longer fit into the processor's caches."""
_FEW = 500
"""Shards with fewer records than this, on average, are decoded together."""

Owner = Callable[[bytes], ShardState]
"""The shard that owns a key, as of the end of the epoch before."""


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
    with bound_contextvars(lane=lane), open_lane(assigned.program, lane, epoch.attempt) as state:
        require_the_same(state, assigned)
        if state.earliest <= epoch.previous < state.epoch:
            _roll_back(state, epoch)
        _require(state, epoch, epoch.previous)
        if assigned.program.is_spread:
            state.stamp(epoch.attempt)


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
    """Run a stage without state, on no particular lane."""
    run = StageRun(assigned, stores.globals)
    run.arrive(records, in_shards=False)
    run.feed(run.bind(LaneState(memory_engine()).shard(0), assigned.epoch.watermark), ANY_SHARD, None)
    run.flush()
    return run.end()


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
    before = None if epoch.watermark is None else epoch.watermark_before
    run.arrive(records)
    waits = assigned.program.may_wait(stage)
    for shard in assigned.shards:
        if shard not in run.arrived and not (waits and is_due(state.shard(shard), stage, epoch)):
            continue
        bound = run.bind(state.shard(shard), before)
        if bound.clocks.wall_clock_punctuators:
            bound.clocks.fire_punctuators()
        if bound.clocks.have_timers:
            faults.point("lane.before_timers")
            bound.clocks.fire_timers()
            faults.point("lane.after_timers")
        run.feed(bound, shard, epoch.watermark)
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
        run.feed(run.bind(AllLanes(assigned, states), epoch.watermark), ANY_SHARD, None)
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
    changes = state.commit(epoch.number, assigned.stage, program.incarnation, mark, epoch.last_committed, epoch.attempt)
    rows = rows_of_changes(assigned, changes)
    return [] if rows is None else [rows]


class StageRun:
    """A stage of an epoch on one lane, or on none: its nodes, bound once per shard, and what they send.

    With a `stay`, the user's processors may have been in earlier epochs, and go on to later ones.
    """

    def __init__(
        self, assigned: Assignment, globals_: LaneState | None, owner: Owner | None = None, stay: Stay | None = None
    ) -> None:
        program, epoch = assigned.program, assigned.epoch
        self._assigned = assigned
        self._globals = globals_
        self._owner = owner
        self._stay = stay
        self._watch = Watch(assigned)
        self._policy = FailurePolicy(program.handlers, program.application_id, epoch.number)
        self._start = crc32(program.incarnation.encode())
        self._traces = Traces() if program.is_traced else None
        self._blueprint = _blueprint(assigned)
        self._catalogue = epoch.catalogue(program)
        self._values: Values | None = None
        self._may_gather = False
        self._all = NO_RECORDS
        self._output = Output(program, assigned.stage)
        self._calling: list[tuple[int, Lane, pa.Table]] = []
        self.arrived: dict[int, pa.Table] = {}
        """The records of each shard that has any, in processing order."""
        self.bound: dict[int, Lane] = {}
        self.due: tuple[int | None, int | None] = (None, None)
        """The earliest wall-clock time and watermark that something waits for."""

    def bind(self, state: StateOfStores, watermark: int | None) -> Lane:
        """Bind the stage's nodes to the state of a shard; `watermark` is the one that the shard knows."""
        program, epoch = self._assigned.program, self._assigned.epoch
        partitions = epoch.partitions or {}
        own = state.number if isinstance(state, ShardState) else ANY_SHARD
        return Lane(
            self._blueprint,
            OwnShard(state, self._globals, lambda key: shard_of(key, program.shards) == own, self._owner),
            Surroundings(
                wall_clock=lambda: epoch.wall_clock,
                partitions=lambda topic: partitions.get(topic, 1),
                callers=lambda: callers_of(program),
                start=self._start,
            ),
            self._policy,
            watermark,
            self._watch.samples,
            self._traces,
            None if self._stay is None else self._stay.residents(own),
        )

    def arrive(self, records: pa.Table, in_shards: bool = True) -> None:
        """Accept the records of the stage; without `in_shards`, as records of a single shard."""
        if not records.num_rows:
            return
        shards = records.column("shard").to_numpy()
        order, place = processing_order(records, shards if in_shards else None)
        if order is not None:
            records, shards = records.take(pa.array(order)), shards[order]
        columns = [
            pa.array(place) if name == "place" else records.column(_WIRE_NAME.get(name, name)) for name in RECORDS_BY_SHARD.names
        ]
        self._all = pa.Table.from_arrays(columns, schema=RECORDS_BY_SHARD)
        if not in_shards:
            self.arrived = {ANY_SHARD: self._all}
        else:
            self.arrived = dict(self._by_shard(shards))
        # Then each shard reads its own records, and all at once, for columns.
        self._may_gather = any(map(are_many, self.arrived.values())) and bool(self._blueprint.columnar_paths)

    def _by_shard(self, shards: Any) -> Iterator[tuple[int, pa.Table]]:
        starts = np.flatnonzero(np.diff(shards, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(shards)], strict=True):
            yield int(shards[start]), self._all.slice(start, end - start)

    def feed(self, bound: Lane, shard: int, watermark: int | None) -> None:
        """Run a shard's records through its nodes, and flush its caches; with pending calls, `flush` does that for all shards."""
        if not self.bound and 0 < self._all.num_rows < _FEW * len(self.arrived) and not self._may_gather:
            self._values = read_all(bound, self._all, self._catalogue)
        self.bound[shard] = bound
        records = self.arrived.get(shard, NO_RECORDS)
        if bound.circuit.pending_calls:
            self._calling.append((shard, bound, self._fed(bound, records, watermark)))
            return
        for piece in self._pieces(records, watermark):
            walked = self._fed(bound, piece, watermark)
            self._output.add(shard, bound.outbox.drain(), walked)
        flush([bound])
        self._output.add(shard, bound.outbox.drain(), NO_RECORDS)

    def _fed(self, bound: Lane, records: pa.Table, watermark: int | None) -> pa.Table:
        return feed(bound, records, self._catalogue, watermark, self._values if records.num_rows else None)

    def _pieces(self, records: pa.Table, watermark: int | None) -> list[pa.Table]:
        """Return the records in pieces that are processed one after the other."""
        if records.num_rows <= _PIECE or watermark is not None or self._values is not None or self._may_gather:
            return [records]
        return [records.slice(start, _PIECE) for start in range(0, records.num_rows, _PIECE)]

    def flush(self) -> None:
        """Make pending calls, and flush the caches of all shards that have made some."""
        flush([bound for _, bound, _ in self._calling])
        for shard, bound, walked in self._calling:
            self._output.add(shard, bound.outbox.drain(), walked)

    def end(self, state: LaneState | None = None) -> list[pa.Table]:
        """Return the output of the stage: rows for topics and later stages, and rows for the driver."""
        dropped = dict[tuple[str, str], int]()
        for bound in self.bound.values():
            for what, count in bound.outbox.dropped.items():
                dropped[what] = dropped.get(what, 0) + count
            if self._stay is None:
                bound.close()
        report: LaneReport = self._watch.report(self._output.records, state)
        control = Control(
            {},
            self.due[0],
            [(*what, count) for what, count in dropped.items()],
            self.due[1],
            wants_commit=any(bound.outbox.commit_requested for bound in self.bound.values()),
            metrics=combined(bound.metrics for bound in self.bound.values()),
        )
        for bound in self.bound.values():
            bound.metrics.start_again()
        about = rows_about(self._assigned.shards.start, report, None if control == Control() else control)
        return [*self._output.tables(), about]


def _blueprint(assigned: Assignment) -> Blueprint:
    """Return the nodes of a stage, which can read the tables of all others."""
    program = assigned.program
    return Blueprint(
        [program.nodes[name] for name in program.plan.stages[assigned.stage].nodes],
        program.specs,
        tables=program.nodes,
        global_stores=program.global_stores,
        watermarked=program.watermarked,
        sub_topologies=program.sub_topologies,
        columns=program.columns,
    )


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
