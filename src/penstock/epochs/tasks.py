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
from penstock.epochs.wire import OUT, WIRE, arrived, out

Batches = Iterable[pa.RecordBatch]


def run_whole(program: Program, epoch: Epoch, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Run all stages and lanes, which is cheaper for a small epoch."""
    bind_contextvars(epoch=epoch.number)
    return bounded(epoch, batches, lambda records: run_epoch(program, epoch, records), OUT, is_input=True)


def run_sources(program: Program, epoch: Epoch, task: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Process records where they were read: event and stream times, and the first stage if it has no state.

    Any lane could do it: reports count it for the one with the number of the task.
    """
    bind_contextvars(epoch=epoch.number)
    assigned = Assignment(program, epoch, lane=task % program.lanes)
    is_last = len(program.plan.stages) == 1 and not assigned.needs_lanes

    def work(records: list[pa.RecordBatch]) -> pa.Table:
        table = on_shards(assigned, prepare_input(assigned, records))
        if not assigned.needs_lanes:
            table = run_stage(assigned, table)
        return out(table) if is_last else table

    return bounded(epoch, batches, work, OUT if is_last else WIRE, is_input=True)


def run_lane(assigned: Assignment, batches: Batches, is_first: bool) -> Iterator[pa.RecordBatch]:
    """Run a stage on one lane; `is_first` says that the records come from topics, with their shards."""
    bind_contextvars(epoch=assigned.epoch.number)
    is_last = assigned.stage == len(assigned.program.plan.stages) - 1

    def work(rows: list[pa.RecordBatch]) -> pa.Table:
        table = prepare_input(assigned, rows, ROUTED_INPUT) if is_first else arrived(rows, WIRE)
        if assigned.is_divided:
            return run_section(assigned, table)
        table = run_stage(assigned, table)
        return out(table) if is_last else table

    schema = OUT if is_last and not assigned.is_divided else WIRE
    return bounded(assigned.epoch, batches, work, schema, is_input=is_first)


def run_changes(assigned: Assignment, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Write what an atomic section has changed in a lane: the second step of its stage."""
    bind_contextvars(epoch=assigned.epoch.number)
    is_last = assigned.stage == len(assigned.program.plan.stages) - 1

    def work(rows: list[pa.RecordBatch]) -> pa.Table:
        table = apply_section(assigned, arrived(rows, WIRE))
        return out(table) if is_last else table

    return bounded(assigned.epoch, batches, work, OUT if is_last else WIRE, is_input=False)
