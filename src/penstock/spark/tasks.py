"""What Spark's Python workers run: the hops of an epoch, with the program from the driver's broadcast."""

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
"""New objects between two garbage collections. A lane creates and drops hundreds of thousands per epoch, and none in cycles:
with Python's default of 700, a quarter of its time was spent on collections."""

_programs: dict[str, Program] = {}


def program_of(broadcast: Any) -> Program:
    """Return the program, unpickled once per worker, which is then prepared; this application's own driver pickled it."""
    incarnation, packed, prepare = broadcast.value
    if incarnation not in _programs:
        _programs.clear()
        _programs[incarnation] = cloudpickle.loads(packed)
        prepare()
        gc.set_threshold(COLLECT_EVERY)
    return _programs[incarnation]


def _begin(broadcast: Any, epoch: Epoch) -> Program:
    """Return the program for a task of an epoch, and add the epoch to its log lines."""
    program = program_of(broadcast)
    bind_contextvars(epoch=epoch.number)
    return program


def whole_epoch(broadcast: Any, epoch: Epoch) -> Hop:
    """Run all stages and lanes in one task, which is cheaper for a small epoch."""

    def hop(batches: Batches) -> Batches:
        program = _begin(broadcast, epoch)
        return bounded(epoch, batches, lambda records: run_epoch(program, epoch, records), OUT, is_input=True)

    return hop


def empty_epoch(broadcast: Any, epoch: Epoch) -> Hop:
    """Run all stages and lanes without records; the input row is only a trigger."""

    def hop(batches: Batches) -> Batches:
        program = _begin(broadcast, epoch)
        deque(batches, maxlen=0)  # Spark discards a worker that has not read all of its input; a new one takes seconds
        return bounded(epoch, (), lambda records: run_epoch(program, epoch, records), OUT)

    return hop


def from_sources(broadcast: Any, epoch: Epoch) -> Hop:
    """Run where records are read: event and stream times, and the first stage if it has no state."""

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
    """Run a stage on the lane of the task."""

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
    """Roll the lanes in the input rows back to the last barrier."""

    def hop(batches: Batches) -> Batches:
        program = _begin(broadcast, epoch)
        for lane in [lane for batch in batches for lane in batch.column(0).to_pylist()]:
            roll_back_lane(Assignment(program, epoch, lane=lane))
        return iter(())

    return hop
