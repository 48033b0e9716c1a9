"""What Spark's Python workers run: the hops of an epoch, with the program that the driver broadcast."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark import TaskContext
from structlog.contextvars import bind_contextvars

from penstock.epochs.entering import enter, needs_entering
from penstock.epochs.hops import from_topics, on_lanes, out, run_stage
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import WIRE, arrived

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
        return iter(run_epoch(_begin(broadcast, epoch), epoch, list(batches)).to_batches())

    return hop


def empty_epoch(broadcast: Any, epoch: Epoch) -> Hop:
    """All stages and lanes without records; the row that starts the task means nothing."""

    def hop(batches: Batches) -> Batches:
        return iter(run_epoch(_begin(broadcast, epoch), epoch, []).to_batches())

    return hop


def from_sources(broadcast: Any, epoch: Epoch) -> Hop:
    """Where records are read: event and stream time, and the first stage if it keeps no state."""

    def hop(batches: Batches) -> Batches:
        program = _begin(broadcast, epoch)
        table = from_topics(list(batches))
        if needs_entering(program):
            table = pa.concat_tables(enter(program, epoch, table))
        table = on_lanes(program, table)
        if not program.needs_lanes(0):
            table = run_stage(program, epoch, 0, 0, table)
        yield from (table if len(program.plan.stages) > 1 or program.needs_lanes(0) else out(table)).to_batches()

    return hop


def on_lane(broadcast: Any, epoch: Epoch, stage: int, is_first: bool) -> Hop:
    """A stage on the lane that the task is."""

    def hop(batches: Batches) -> Batches:
        program = _begin(broadcast, epoch)
        lane = TaskContext.get().partitionId()  # type: ignore[union-attr]
        table = from_topics(list(batches)) if is_first else arrived(list(batches), WIRE)
        table = run_stage(program, epoch, stage, lane, table)
        yield from (out(table) if stage == len(program.plan.stages) - 1 else table).to_batches()

    return hop
