"""What a task of an epoch does, on any host: it takes Arrow batches, runs its part of the epoch, and yields Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from structlog.contextvars import bind_contextvars

from penstock.epochs.assignment import Assignment
from penstock.epochs.bounds import bounded
from penstock.epochs.entry import prepare_input
from penstock.epochs.hops import ROUTED_INPUT, run_stage
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program
from penstock.epochs.routes import on_shards
from penstock.epochs.sections import apply_section, run_section
from penstock.epochs.walk import Act, Step
from penstock.epochs.wire import OUT, WIRE, out

Batches = Iterable[pa.RecordBatch]


def run_whole(program: Program, epoch: Epoch, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Run all stages and lanes, which is cheaper for a small epoch."""
    bind_contextvars(epoch=epoch.number)
    return bounded(epoch, batches, lambda records: run_epoch(program, epoch, records), OUT, is_input=True)


def run_step(program: Program, epoch: Epoch, step: Step, task: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Run one step: `task` is the number of the lane, or of one of several tasks that share the records of an entering step."""
    bind_contextvars(epoch=epoch.number)
    assigned = Assignment(program, epoch, step.stage, task % program.lanes)

    def work(rows: list[pa.RecordBatch]) -> pa.Table:
        table = _run(step, assigned, rows)
        return out(table) if step.is_last else table

    return bounded(epoch, batches, work, step.schema, is_input=step.is_first)


def _run(step: Step, assigned: Assignment, rows: list[pa.RecordBatch]) -> pa.Table:
    if step.act is Act.ENTER:  # any lane could do it: reports count it for the one with the number of the task
        table = on_shards(assigned, prepare_input(assigned, rows))
        return table if assigned.needs_lanes else run_stage(assigned, table)
    table = prepare_input(assigned, rows, ROUTED_INPUT) if step.is_first else pa.Table.from_batches(rows, WIRE)
    if step.act is Act.SECTION:
        return run_section(assigned, table)
    return apply_section(assigned, table) if step.act is Act.APPLY else run_stage(assigned, table)
