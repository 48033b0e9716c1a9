"""What the driver requests from a worker process: a part of an epoch, the roll-back or the restore of a lane, or to be ready."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa
from structlog.contextvars import bound_contextvars

from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import roll_back_lane
from penstock.epochs.program import Epoch, Program
from penstock.epochs.restore import ReadChangelog, restore_lane
from penstock.epochs.standing import Committed
from penstock.epochs.tasks import run_lane, run_sources, run_whole

Batches = list[pa.RecordBatch]
Report = Callable[[int], None]


class RowsRequest(Protocol):
    """A request with records, answered with rows."""

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run it; yield the rows."""


@dataclass(frozen=True)
class RunEpoch:
    """Run a whole epoch."""

    epoch: Epoch

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run all stages and lanes."""
        return run_whole(program, self.epoch, batches)


@dataclass(frozen=True)
class RunSources:
    """Process records where they were read; `task` is one of several that share an epoch's records."""

    epoch: Epoch
    task: int

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Find event times and shards; run the first stage if it has no state."""
        return run_sources(program, self.epoch, self.task, batches)


@dataclass(frozen=True)
class RunLane:
    """Run a stage on one lane."""

    epoch: Epoch
    stage: int
    lane: int
    is_first: bool

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run the stage."""
        return run_lane(Assignment(program, self.epoch, self.stage, self.lane), batches, self.is_first)


@dataclass(frozen=True)
class RollBack:
    """Roll lanes back to the epoch before this one."""

    epoch: Epoch
    lanes: tuple[int, ...]

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Roll back; there are no rows."""
        for lane in self.lanes:
            roll_back_lane(Assignment(program, self.epoch, lane=lane))
        return iter(())


@dataclass(frozen=True)
class Load:
    """Load the program, as the first request does, whatever it is."""

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Do nothing: the program is loaded."""
        return iter(())


@dataclass(frozen=True)
class RestoreLane:
    """Restore a lane to the committed epoch; `read` reads changelogs."""

    lane: int
    committed: Committed
    read: ReadChangelog
    is_retry: bool = False

    def restore(self, program: Program, report: Report) -> bytes:
        """Restore; return the encoded `Restored`."""
        with bound_contextvars(lane=self.lane):
            restored = restore_lane(program, self.lane, self.committed, self.read, report, self.is_retry)
        return msgspec.msgpack.encode(tuple(restored))
