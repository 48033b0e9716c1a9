"""What the driver requests of a slot: a part of an epoch, the roll-back, restore or migration of lanes, or to be ready."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import msgspec
import pyarrow as pa
from structlog.contextvars import bound_contextvars

from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import roll_back_lane
from penstock.epochs.migration import MigrationStep
from penstock.epochs.program import Epoch, Program
from penstock.epochs.restore import ReadChangelog, restore_lane
from penstock.epochs.stage_run import close_callers
from penstock.epochs.standing import Committed
from penstock.epochs.state_directory import server_of
from penstock.epochs.stays import end_stays
from penstock.epochs.tasks import run_step, run_whole
from penstock.epochs.walk import Step
from penstock.state.remote.client import Address

Batches = list[pa.RecordBatch]

_DAEMON = b"penstock.spark.daemon"
"""What the slots of a cluster are forked from."""
Report = Callable[[int], None]


class RowsRequest(Protocol):
    """A request with records, answered with rows."""

    @property
    def reads_topics(self) -> bool:
        """Whether its records come from topics."""

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run it; yield the rows."""


@dataclass(frozen=True)
class RunEpoch:
    """Run a whole epoch."""

    epoch: Epoch
    reads_topics: ClassVar[bool] = True

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run all stages and lanes."""
        return run_whole(program, self.epoch, batches)


@dataclass(frozen=True)
class RunStep:
    """Run a step of an epoch; `task` is the lane, or one of several that share the records of an entering step."""

    epoch: Epoch
    step: Step
    task: int

    @property
    def reads_topics(self) -> bool:
        """Whether its records come from topics."""
        return self.step.is_first

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run the step."""
        return run_step(program, self.epoch, self.step, self.task, batches)


@dataclass(frozen=True)
class RollBack:
    """Roll lanes back to the epoch before this one."""

    epoch: Epoch
    lanes: tuple[int, ...]
    reads_topics: ClassVar[bool] = False

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Roll back; there are no rows."""
        for lane in self.lanes:
            roll_back_lane(Assignment(program, self.epoch, lane=lane))
        return iter(())


@dataclass(frozen=True)
class Migrate:
    """Run a step of a migration on lanes."""

    epoch: Epoch
    step: MigrationStep
    lanes: tuple[int, ...]
    reads_topics: ClassVar[bool] = False

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run the step; yield its rows."""
        for lane in self.lanes:
            yield from self.step(Assignment(program, self.epoch, lane=lane)).to_batches()


@dataclass(frozen=True)
class EndProcess:
    """End a slot of this host that does not answer: it may hold a lane's file."""

    process: int
    reads_topics: ClassVar[bool] = False

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """End it, unless it has ended, or another program has its number; there are no rows."""
        with suppress(OSError):
            if _DAEMON in Path(f"/proc/{self.process}/cmdline").read_bytes():
                os.kill(self.process, signal.SIGKILL)
        return iter(())


@dataclass(frozen=True)
class Leave:
    """Close what user code has open in this process: processors, and clients of `setup=`. The application ends."""

    reads_topics: ClassVar[bool] = False

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Close all of it; there are no rows."""
        end_stays(program)
        close_callers(program)
        return iter(())


@dataclass(frozen=True)
class Load:
    """Load the program, as the first request does, whatever it is."""

    reads_topics: ClassVar[bool] = False

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Do nothing: the program is loaded."""
        return iter(())


@dataclass(frozen=True)
class RestoreLane:
    """Restore a lane to the committed epoch; `read` reads changelogs.

    On a cluster, `host` is where it runs, and `peer` the lane server of the host that has had it, if that was another one.
    """

    lane: int
    committed: Committed
    read: ReadChangelog
    is_retry: bool = False
    host: str = ""
    peer: Address | None = None

    def restore(self, program: Program, report: Report) -> bytes:
        """Restore; return the encoded `Restored`."""
        with bound_contextvars(lane=self.lane):
            restored = restore_lane(program, self.lane, self.committed, self.read, report, self.is_retry, self.peer)
            if self.host:
                restored = restored._replace(port=server_of(program, self.host))
        return msgspec.msgpack.encode(tuple(restored))
