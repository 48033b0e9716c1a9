"""The hops of an epoch: from the topics to the first lanes, and from stage to stage; each takes a table and gives one.

Hosted by Spark tasks, one hop per Python call with shuffles in between, or one after the other in a single process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
from structlog.contextvars import bound_contextvars

from penstock import faults
from penstock.epochs.calling import callers_of
from penstock.epochs.home import committed_lanes, open_globals, open_lane
from penstock.epochs.program import Epoch, Program
from penstock.epochs.reporting import Watch
from penstock.epochs.sending import (
    in_order_of_stages,
    lanes_of_keys,
    row_of_notes,
    rows_of_changes,
    rows_out,
    rows_to_exchanges,
)
from penstock.epochs.serial import AllLanes
from penstock.epochs.shards import shard_of, shards_of
from penstock.epochs.wire import OUT, Control, Kind, LaneReport, arrived, control_row, records_of, report_row, wire
from penstock.errors import StateError
from penstock.lanes.epoch import HEADERS, walk
from penstock.lanes.failures import Failures
from penstock.lanes.lane import Lane
from penstock.lanes.tracing import Traces
from penstock.state import LaneState, Mark, StateOfStores, memory_engine

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
"""Records as they are read from topics: the source and the origin by their codes, the rest as Kafka has it."""


def from_topics(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Records as read from topics, as rows on their way to a stage."""
    table = arrived(batches, INPUT)
    columns = {name: table.column(name) for name in INPUT.names}
    return wire(table.num_rows, kind=np.zeros(table.num_rows, np.int8), **columns)


def run_stage(program: Program, epoch: Epoch, stage: int, lane: int, table: pa.Table, is_anew: bool = False) -> pa.Table:
    """Run a stage's records through one lane; other rows pass by, in front of what the lane sends.

    `is_anew` says that all later stages will run again, too: whatever is there of the epoch is taken back.
    """
    mine, passing = _split(program, stage, table)
    if program.section_stores:
        passing = in_order_of_stages(passing)
    if not program.needs_lanes(stage):
        return pa.concat_tables([passing, *_run_free(program, epoch, stage, lane, mine)])
    with bound_contextvars(lane=lane):
        if program.plan.stages[stage].is_serial:
            return pa.concat_tables([passing, *_run_serially(program, epoch, stage, lane, mine, is_anew)])
        with open_globals(program) as globals_, open_lane(program, lane) as state, committed_lanes(program, epoch) as owner:
            bring_to(state, epoch, stage, is_anew)
            return pa.concat_tables([passing, *_run_on(program, epoch, stage, lane, mine, state, globals_, owner)])


def bring_to(state: LaneState, epoch: Epoch, stage: int, is_anew: bool = False) -> None:
    """Have the lane as the stage needs it: at the committed epoch, plus what earlier stages have written of this one.

    A task that is retried takes back what its first attempt wrote.
    """
    is_ahead = state.epoch == epoch.number and state.last_stage >= stage
    if is_ahead and state.last_stage > stage and not is_anew:
        raise StateError(f"stage {stage} of epoch {epoch.number} runs again after stage {state.last_stage}: start the epoch anew")
    if is_ahead:
        faults.point("lane.before_roll_back")
        state.roll_back(stage)
    if state.epoch not in (epoch.committed, epoch.number):
        raise StateError(f"a lane is at epoch {state.epoch}, but {epoch.committed} is committed: it has to be restored")


def own_mark(program: Program, lane: int, mark: Mark | None) -> Mark | None:
    """The part of a mark that is about the lane's own changelog partitions."""
    if mark is None:
        return None
    own = shards_of(lane, program.shards, program.lanes)
    offsets = {place: offset for place, offset in mark.offsets.items() if int(place.rpartition("/")[2]) in own}
    return Mark(mark.epoch, mark.time_ms, offsets)


def _run_free(program: Program, epoch: Epoch, stage: int, lane: int, records: pa.Table) -> list[pa.Table]:
    """A stage without state, anywhere."""
    with open_globals(program) as globals_:
        watch = Watch(epoch, stage, lane)
        bound = _bind(program, epoch, stage, lane, LaneState(memory_engine()), globals_, epoch.watermark, watch)
        walked = walk(bound, records_of(records), epoch.catalogue(program))
        return _sent(program, bound, walked, stage, lane, watch.report(walked.num_rows))


def _run_on(
    program: Program,
    epoch: Epoch,
    stage: int,
    lane: int,
    records: pa.Table,
    state: LaneState,
    globals_: LaneState | None,
    owner: Callable[[bytes], LaneState],
) -> list[pa.Table]:
    """A stage on the lane of its keys."""
    before = None if epoch.watermark is None else epoch.watermark_before
    watch = Watch(epoch, stage, lane)
    bound = _bind(program, epoch, stage, lane, state, globals_, before, watch, owner)
    if bound.wall_clock_punctuators:
        bound.advance_wall_clock()
    if bound.has_timers:
        faults.point("lane.before_timers")
        bound.fire_timers()
        faults.point("lane.after_timers")
    walked = walk(bound, records_of(records), epoch.catalogue(program), epoch.watermark)
    faults.point("lane.before_write")
    written = _written(program, epoch, stage, lane, state)
    faults.point("lane.after_write")
    return [*_sent(program, bound, walked, stage, lane, watch.report(walked.num_rows, state)), *written]


def _run_serially(program: Program, epoch: Epoch, stage: int, lane: int, records: pa.Table, is_anew: bool) -> list[pa.Table]:
    """An atomic section: the first lane's task works on the stores of all lanes, while the others' have nothing to do.

    Without records there is nothing to write either, unless no earlier stage has brought the lanes to this epoch.
    """
    if lane != 0 or (not records.num_rows and any(program.needs_lanes(earlier) for earlier in range(stage))):
        return []
    with open_globals(program) as globals_, ExitStack() as opened:
        states = [opened.enter_context(open_lane(program, number)) for number in range(program.lanes)]
        for state in states:
            bring_to(state, epoch, stage, is_anew)
        watch = Watch(epoch, stage, lane)
        bound = _bind(program, epoch, stage, lane, AllLanes(program, stage, states), globals_, epoch.watermark, watch)
        walked = walk(bound, records_of(records), epoch.catalogue(program))
        faults.point("serial.before_write")
        written: list[pa.Table] = []
        for number, state in enumerate(states):
            if state.is_written or state.epoch != epoch.number:
                written += _written(program, epoch, stage, number, state)
            if number < program.lanes - 1:
                faults.point("serial.between_lanes")
        return [*_sent(program, bound, walked, stage, lane, watch.report(walked.num_rows)), *written]


def _written(program: Program, epoch: Epoch, stage: int, lane: int, state: LaneState) -> list[pa.Table]:
    """Write what a stage has changed in a lane; its changelog rows, and what the lane remembers besides."""
    # The first epoch of a start says it in any case: what was restored may be known only under another number of lanes.
    has_moved = state.registers.snapshot() != state.registers.saved or not state.can_roll_back
    changes = state.commit(epoch.number, stage, program.incarnation, own_mark(program, lane, epoch.mark))
    tables = rows_of_changes(program, changes, lane, stage, epoch.wall_clock)
    if has_moved:
        tables.append(row_of_notes(program, state.registers.snapshot(), lane, epoch.number, epoch.wall_clock))
    return tables


def _bind(
    program: Program,
    epoch: Epoch,
    stage: int,
    lane: int,
    state: StateOfStores,
    globals_: LaneState | None,
    watermark: int | None,
    watch: Watch,
    owner: Callable[[bytes], LaneState] | None = None,
) -> Lane:
    partitions = epoch.partitions or {}
    own = shards_of(lane, program.shards, program.lanes)
    return Lane(
        [program.nodes[name] for name in program.plan.stages[stage].nodes],
        program.specs,
        state,
        wall_clock=lambda: epoch.wall_clock,
        partitions=lambda topic: partitions.get(topic, 1),
        global_stores=program.global_stores,
        tables=program.nodes,
        global_state=globals_,
        failures=Failures(program.handlers, program.application_id, epoch.number),
        watermark=watermark,
        watermarked=program.watermarked,
        owns=lambda key: shard_of(key, program.shards) in own,
        callers=lambda: callers_of(program),
        committed_owner=owner,
        samples=watch.samples,
        traces=Traces() if program.is_traced else None,
    )


def _sent(program: Program, lane: Lane, walked: pa.Table, stage: int, number: int, report: LaneReport) -> list[pa.Table]:
    """What a lane sends: rows for topics, rows for later stages, and what the driver should know."""
    causes = list(lane.causes)
    rows = lane.drain()
    due, event_due = lane.due, lane.event_due
    dropped = [(node, reason, count) for (node, reason), count in lane.dropped.items()]
    is_told = bool(dropped) or due is not None or event_due is not None
    tables = [
        rows_out(program, rows, number),
        rows_to_exchanges(program, rows, causes, walked, number, stage),
        control_row(Control({}, due, dropped, event_due), number) if is_told else None,
        report_row(report),
    ]
    lane.close()
    return [table for table in tables if table is not None]


def _split(program: Program, stage: int, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The records of a stage, and everything else."""
    kinds = table.column("kind").to_numpy()
    codes = [code for code, depth in program.depth_of.items() if depth == stage]
    mine = (kinds == Kind.RECORD) & np.isin(table.column("name").to_numpy(), codes)
    if mine.all():
        return table, table.slice(0, 0)
    return table.filter(pa.array(mine)), table.filter(pa.array(~mine))


def out(table: pa.Table) -> pa.Table:
    """The rows that leave the epoch."""
    return table.select(OUT.names)


def on_lanes(program: Program, table: pa.Table) -> pa.Table:
    """Records from topics, with the lanes of their keys."""
    lanes: Any = pa.array(lanes_of_keys(program, table.column("key").to_pylist()), pa.int32())
    return table.set_column(0, "lane", lanes)
