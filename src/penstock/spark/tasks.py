"""What Spark's Python workers run: the hops of an epoch, with the program from the driver's broadcast."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark import TaskContext

from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import roll_back_lane
from penstock.epochs.program import Epoch, Program
from penstock.epochs.tasks import run_changes, run_lane, run_sources, run_whole
from penstock.errors import LaneMovedError
from penstock.workers.process import COLLECT_EVERY

Batches = Iterator[pa.RecordBatch]
Hop = Callable[[Batches], Batches]

STATE_DIR = "PENSTOCK_STATE_DIR"

_programs: dict[str, Program] = {}


def program_of(broadcast: Any) -> Program:
    """Return the program, unpickled once per worker, which is then prepared; this application's own driver pickled it."""
    incarnation, packed, prepare = broadcast.value
    if incarnation not in _programs:
        _programs.clear()
        program: Program = cloudpickle.loads(packed)
        if program.is_spread:  # a host has its own directory if its environment says so
            program = replace(program, directory=os.environ.get(STATE_DIR, program.directory))
        _programs[incarnation] = program
        prepare()
        gc.set_threshold(COLLECT_EVERY)
    return _programs[incarnation]


def program_run_once(broadcast: Any) -> Program:
    """Return the program; on a cluster, raise if Spark runs this task again.

    What a first run has sent cannot be told from what a second one would send: the driver runs the whole epoch again instead.
    Spark's limit of failures does not prevent it: it does not count tasks that end with their worker, or are preempted.
    """
    program, context = program_of(broadcast), TaskContext.get()
    if program.is_spread and context is not None and context.attemptNumber() > 0:
        raise LaneMovedError("The executor of a task was lost, and Spark has run the task again.")
    return program


def whole_epoch(broadcast: Any, epoch: Epoch) -> Hop:
    """Run all stages and lanes in one task, which is cheaper for a small epoch."""
    return lambda batches: run_whole(program_of(broadcast), epoch, batches)


def empty_epoch(broadcast: Any, epoch: Epoch) -> Hop:
    """Run all stages and lanes without records; the input row is only a trigger."""

    def hop(batches: Batches) -> Batches:
        deque(batches, maxlen=0)  # Spark discards a worker that has not read all of its input; a new one takes seconds
        return run_whole(program_of(broadcast), epoch, ())

    return hop


def from_sources(broadcast: Any, epoch: Epoch) -> Hop:
    """Run where records are read: event and stream times, and the first stage if it has no state."""
    return lambda batches: run_sources(program_run_once(broadcast), epoch, _task(), batches)


def on_lane(broadcast: Any, epoch: Epoch, stage: int, is_first: bool) -> Hop:
    """Run a stage on the lane of the task."""

    def hop(batches: Batches) -> Batches:
        program = program_run_once(broadcast)
        rows = _without_anchor(batches) if program.is_spread else batches
        return run_lane(Assignment(program, epoch, stage, _task()), rows, is_first)

    return hop


def changes_of_section(broadcast: Any, epoch: Epoch, stage: int) -> Hop:
    """Write what an atomic section has changed in the lane of the task."""

    def hop(batches: Batches) -> Batches:
        return run_changes(Assignment(program_run_once(broadcast), epoch, stage, _task()), _without_anchor(batches))

    return hop


def discarded(broadcast: Any) -> Hop:
    """Read the rows that arrive, and return none."""

    def hop(batches: Batches) -> Batches:
        program_of(broadcast)
        deque(batches, maxlen=0)
        return iter(())

    return hop


def lane_rolled_back(broadcast: Any, epoch: Epoch) -> Hop:
    """Roll the lanes in the input rows back to the last barrier."""

    def hop(batches: Batches) -> Batches:
        program = program_of(broadcast)
        for lane in [lane for batch in batches for lane in batch.column(0).to_pylist()]:
            roll_back_lane(Assignment(program, epoch, lane=lane))
        return iter(())

    return hop


def _without_anchor(batches: Batches) -> Batches:
    """Yield the rows of an epoch, without the row that has brought the task to its host."""
    for batch in batches:
        shards = batch.column("shard")
        yield batch.filter(shards.is_valid()) if shards.null_count else batch


def _task() -> int:
    """Return the number of the task among those of its job."""
    return TaskContext.get().partitionId()  # type: ignore[union-attr]
