"""What Spark's Python workers run: the hops of an epoch, with the program that the driver broadcast."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark import TaskContext
from structlog.contextvars import bind_contextvars

from penstock.epochs.assignment import Assignment
from penstock.epochs.bounds import bounded
from penstock.epochs.entry import prepare_input
from penstock.epochs.hops import ROUTED_INPUT, out, roll_back_lane, run_stage
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program
from penstock.epochs.routes import on_shards
from penstock.epochs.wire import OUT, WIRE, arrived

Batches = Iterator[pa.RecordBatch]
Hop = Callable[[Batches], Batches]

COLLECT_EVERY = 100_000
"""New objects between two looks for cycles. A lane makes and drops hundreds of thousands per epoch and none in cycles: at
Python's own 700 a fourth of its time went into looking."""

_programs: dict[str, Program] = {}


def program_of(broadcast: Any) -> Program:
    """The program, unpacked once per worker, which is prepared then; it was packed by this application's own driver."""
    incarnation, packed, prepare = broadcast.value
    if incarnation not in _programs:
        _programs.clear()
        _programs[incarnation] = cloudpickle.loads(packed)
        prepare()
        gc.set_threshold(COLLECT_EVERY)
    return _programs[incarnation]


def _begin(broadcast: Any, epoch: Epoch) -> Program:
    """The program for a task of an epoch, which is what is logged about from here on."""
    program = program_of(broadcast)
    bind_contextvars(epoch=epoch.number)
    return program


def whole_epoch(broadcast: Any, epoch: Epoch) -> Hop:
    """All stages and lanes in one task: the cheap way for a small epoch."""

    def hop(batches: Batches) -> Batches:
        program = _begin(broadcast, epoch)
        return bounded(epoch, batches, lambda records: run_epoch(program, epoch, records), OUT, is_input=True)

    return hop


def empty_epoch(broadcast: Any, epoch: Epoch) -> Hop:
    """All stages and lanes without records; the row that starts the task means nothing."""

    def hop(batches: Batches) -> Batches:
        program = _begin(broadcast, epoch)
        deque(batches, maxlen=0)  # Spark gives up a worker that has not read its input to the end; a new one takes seconds
        return bounded(epoch, (), lambda records: run_epoch(program, epoch, records), OUT)

    return hop


def from_sources(broadcast: Any, epoch: Epoch) -> Hop:
    """Where records are read: event and stream time, and the first stage if it keeps no state."""

    def hop(batches: Batches) -> Batches:
        program = _begin(broadcast, epoch)
        assigned = Assignment(program, epoch)
        is_last = len(program.plan.stages) == 1 and not assigned.needs_lanes

        def work(records: list[pa.RecordBatch]) -> pa.Table:
            table = on_shards(assigned, prepare_input(assigned, records))
            if not assigned.needs_lanes:
                table = run_stage(assigned, table)
            return out(table) if is_last else table

        return bounded(epoch, batches, work, OUT if is_last else WIRE, is_input=True)

    return hop


def on_lane(broadcast: Any, epoch: Epoch, stage: int, is_first: bool) -> Hop:
    """A stage on the lane that the task is."""

    def hop(batches: Batches) -> Batches:
        program = _begin(broadcast, epoch)
        assigned = Assignment(program, epoch, stage, TaskContext.get().partitionId())  # type: ignore[union-attr]
        is_last = stage == len(program.plan.stages) - 1

        def work(rows: list[pa.RecordBatch]) -> pa.Table:
            table = prepare_input(assigned, rows, ROUTED_INPUT) if is_first else arrived(rows, WIRE)
            table = run_stage(assigned, table)
            return out(table) if is_last else table

        return bounded(epoch, batches, work, OUT if is_last else WIRE, is_input=is_first)

    return hop


def lane_rolled_back(broadcast: Any, epoch: Epoch) -> Hop:
    """Have the lane that the task is as the last barrier left it; the row that starts the task means nothing."""

    def hop(batches: Batches) -> Batches:
        program = _begin(broadcast, epoch)
        for lane in [lane for batch in batches for lane in batch.column(0).to_pylist()]:
            roll_back_lane(Assignment(program, epoch, lane=lane))
        return iter(())

    return hop
