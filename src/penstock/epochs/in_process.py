"""A whole epoch in one process: every stage, every lane, with exchanges in memory.

How small epochs run, in a single Spark task, and how tests run epochs of any size without Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.epochs.entering import enter, needs_entering
from penstock.epochs.hops import from_topics, on_lanes, out, run_stage
from penstock.epochs.program import Epoch, Program


def run_epoch(program: Program, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The rows that an epoch's records lead to."""
    table = from_topics(batches)
    if needs_entering(program):
        table = pa.concat_tables(enter(program, epoch, table))
    table = on_lanes(program, table)
    stages = range(len(program.plan.stages))
    first = next((stage for stage in stages if program.needs_lanes(stage)), 0)
    for stage in stages:
        hops = [run_stage(program, epoch, stage, lane, part, stage == first) for lane, part in parts(program, stage, table)]
        table = pa.concat_tables(hops)
    return out(table)


def parts(program: Program, stage: int, table: pa.Table) -> list[tuple[int, pa.Table]]:
    """The rows of each lane; a stage without state takes all of them at once."""
    if not program.needs_lanes(stage):
        return [(0, table)]
    lanes = table.column("lane").to_numpy()
    return [(lane, table.filter(pa.array(lanes == lane))) for lane in range(program.lanes)]
