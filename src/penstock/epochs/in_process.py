"""A whole epoch in one process: every stage, every lane, with exchanges in memory.

Small epochs run like this, in a single task; tests run epochs of any size like this.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.epochs.assignment import Assignment
from penstock.epochs.entry import prepare_input
from penstock.epochs.hops import run_stage_on
from penstock.epochs.opened import open_stores
from penstock.epochs.parts import by_lane
from penstock.epochs.program import Epoch, Program
from penstock.epochs.routes import on_shards
from penstock.epochs.walk import Act, Step, walk_of
from penstock.epochs.wire import in_order_of_causes, out


def run_epoch(program: Program, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Run an epoch; return its rows."""
    assigned = Assignment(program, epoch)
    table = on_shards(assigned, prepare_input(assigned, batches))
    stages = [step.stage for step in walk_of(program) if _runs_a_stage(program, step)]
    first = next((stage for stage in stages if program.needs_lanes(stage)), 0)
    with open_stores(program, epoch, range(program.lanes)) as stores:
        for stage in stages:
            hops = [
                run_stage_on(stores, assigned.at(stage, lane), part, stage == first)
                for lane, part in parts(program, stage, table)
            ]
            table = pa.concat_tables(hops)
    return in_order_of_causes(out(table))


def _runs_a_stage(program: Program, step: Step) -> bool:
    """Whether anything is left to do for a step: records have entered, and what a section has changed is written with it."""
    return step.act is not Act.APPLY and not (step.act is Act.ENTER and program.needs_lanes(step.stage))


def parts(program: Program, stage: int, table: pa.Table) -> list[tuple[int, pa.Table]]:
    """Return the rows of each lane; a stage without state takes all rows at once."""
    return list(enumerate(by_lane(program, table) if program.needs_lanes(stage) else [table]))
