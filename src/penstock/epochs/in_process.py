"""A whole epoch in one process: every stage, every lane, with exchanges in memory.

Small epochs run like this, in a single task; tests run epochs of any size like this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.epochs.assignment import Assignment
from penstock.epochs.entry import prepare_input
from penstock.epochs.hops import run_stage_on
from penstock.epochs.opened import open_stores
from penstock.epochs.program import Epoch, Program
from penstock.epochs.routes import on_shards
from penstock.epochs.shards import lane_of
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


def by_lane(program: Program, table: pa.Table) -> list[pa.Table]:
    """Return the rows of each lane, in their order."""
    if program.lanes == 1:
        return [table]
    return divided(table, lane_of(table.column("shard").to_numpy(), program.shards, program.lanes), program.lanes)


def divided(table: pa.Table, parts: Any, count: int) -> list[pa.Table]:
    """Return the rows of each part, in their order; `parts` are the numbers of the rows' parts."""
    table = table.take(pa.array(np.argsort(parts, kind="stable")))
    ends = np.cumsum(np.bincount(parts, minlength=count)).tolist()
    return [table.slice(begin, end - begin) for begin, end in pairwise([0, *ends])]


def collected(found: Iterable[Iterable[pa.RecordBatch]], schema: pa.Schema) -> pa.Table:
    """Return all rows as one table."""
    return pa.Table.from_batches([batch for each in found for batch in each], schema)
