"""Atomic sections on several hosts: one task reads the lanes of all hosts, and each lane then writes its own changes.

On one machine, the task of the first lane writes the files of all lanes. Here it cannot: its changes travel to the lanes that own
them, as rows, and are written there in a second step of the same stage.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock import faults
from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import bring_to, split, write_lane
from penstock.epochs.lane_reports import Watch
from penstock.epochs.opened import OpenStores, open_stores, require_the_same
from penstock.epochs.output import ANY_SHARD, rows_of_changes
from penstock.epochs.program import Program, lanes_topic
from penstock.epochs.serial import AllLanes
from penstock.epochs.stage_run import StageRun
from penstock.epochs.stays import staying
from penstock.epochs.wire import Kind, in_order_of_stages, rows_about
from penstock.state import LaneState, StoreChanges, last_registers, pending_changes
from penstock.topology.bindings import changelog_topic


def run_section(assigned: Assignment, table: pa.Table) -> pa.Table:
    """Run a section's records in the task of the first lane; return what they send, with the changes as rows for their lanes."""
    program, epoch, stage = assigned.program, assigned.epoch, assigned.stage
    records, passing = split(assigned, table)
    passing = in_order_of_stages(passing)
    if assigned.lane != 0 or not records.num_rows:
        return passing
    with open_stores(program, epoch, (0,)) as stores:
        states = [_opened(stores, assigned.at(stage, lane)) for lane in range(program.lanes)]
        run = StageRun(assigned, stores.globals)
        run.arrive(records, in_shards=False)
        for walked in run.walk(ANY_SHARD, AllLanes(assigned, states), epoch.watermark, None, apart=False):
            run.take(walked)
        run.flush()
        changes = [change for state in states for change in pending_changes(state, epoch.number)]
        rows = rows_of_changes(assigned, changes, Kind.CHANGE)
        return pa.concat_tables([passing, *run.end(), *([] if rows is None else [rows])])


def apply_section(assigned: Assignment, table: pa.Table) -> pa.Table:
    """Write the changes that a section has made in a lane; other rows pass through."""
    program, epoch, stage = assigned.program, assigned.epoch, assigned.stage
    is_change = pc.equal(table.column("kind"), int(Kind.CHANGE))
    changes, passing = table.filter(is_change), table.filter(pc.invert(is_change))
    watch = Watch(assigned)
    with open_stores(program, epoch, (assigned.lane,)) as stores:
        state = stores.lane(assigned.lane)
        require_the_same(state, assigned)
        bring_to(state, epoch, stage)
        with staying(assigned, state):
            for change in _changes_in(program, changes):
                _apply(program, state, change)
            faults.point("serial.before_write")
            written = write_lane(assigned, state) if state.is_written or state.epoch != epoch.number else []
        about = rows_about(assigned.shards.start, watch.report(0, state), None)
    return pa.concat_tables([passing, *written, about])


def _opened(stores: OpenStores, assigned: Assignment) -> LaneState:
    """Return a lane with what earlier stages have written: the first lane, or a copy of one on another host."""
    state = stores.lane(0) if assigned.lane == 0 else stores.lane_now(assigned.lane)
    require_the_same(state, assigned)
    if assigned.lane == 0:
        bring_to(state, assigned.epoch, assigned.stage)
    return state


def _changes_in(program: Program, rows: pa.Table) -> list[StoreChanges]:
    stores = {changelog_topic(program.application_id, store): store for store in program.logged_stores}
    found: dict[tuple[str, int], StoreChanges] = {}
    columns = [rows.column(name).to_pylist() for name in ("name", "shard", "key", "value")]
    for name, shard, key, value in zip(*columns, strict=True):
        topic = program.topics[name]
        store = "" if topic == lanes_topic(program.application_id) else stores[topic]
        change = found.setdefault((store, shard), StoreChanges(store, [], [], shard))
        change.keys.append(key)
        change.values.append(value)
    return list(found.values())


def _apply(program: Program, state: LaneState, change: StoreChanges) -> None:
    shard = state.shard(change.shard)
    if change.store:
        shard.store(program.specs[change.store])
        shard.stores[change.store].restore(change.keys, change.values)
        return
    registers = last_registers(change.keys, change.values)
    assert registers is not None
    shard.restore_registers(registers)
