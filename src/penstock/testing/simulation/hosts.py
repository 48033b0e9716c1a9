"""`SimulatedEngine`: runs every lane in the thread of who asks, so that a simulation decides about each step of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import pyarrow as pa

from penstock import machine
from penstock.engines.port import Batches, LateError, OnProgress, Whereabouts
from penstock.engines.reading import Reading, ReadingSlot
from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import roll_back_lane
from penstock.epochs.in_process import run_epoch
from penstock.epochs.migration import MigrationStep
from penstock.epochs.program import Epoch, Program, has_lanes
from penstock.epochs.restore import ReadChangelog, Restored, restore_lane
from penstock.epochs.standing import Committed
from penstock.epochs.state_directory import StateDirectory
from penstock.errors import PenstockError

_LATE_S = 0.02
"""By how much a task is late: in this time, a few requests are answered."""

OnStep = Callable[[str], None]
"""Called with the name of a step before and after it; what it raises happens to the engine there."""


def nothing(step: str) -> None:
    """Do nothing."""


class SimulatedEngine:
    """All lanes of a program, in this process."""

    def __init__(self, program: Program, on_step: OnStep = nothing) -> None:
        self._program = program
        self._on_step = on_step
        self._reader = ReadingSlot()

    def start(self) -> None:
        """See `Engine.start`."""

    def warm(self) -> None:
        """See `Engine.warm`."""

    def close(self) -> None:
        """See `Engine.close`."""
        self._reader.close()

    def place(
        self, committed: Committed, read: ReadChangelog, on_progress: OnProgress, distrusted: Collection[int] = ()
    ) -> Sequence[Restored]:
        """See `Engine.place`."""
        self._on_step("engine.before_place")
        return [
            restore_lane(self._program, lane, committed, read, lambda left: None, is_retry=lane in distrusted)
            for lane in range(self._program.lanes)
        ]

    def run(self, epoch: Epoch, records: Batches, *, is_small: bool) -> pa.Table:
        """See `Engine.run`."""
        try:
            self._on_step("engine.before_run")
        except LateError:
            machine.thread(self._run_late, "a late task", (epoch, records)).start()
            raise
        rows = run_epoch(self._program, epoch, records)
        self._on_step("engine.after_run")
        return rows

    def _run_late(self, epoch: Epoch, records: Batches) -> None:
        """Run an attempt that was given up: lanes must refuse it."""
        machine.sleep(_LATE_S)
        with suppress(PenstockError):
            run_epoch(self._program, epoch, records)

    def read(self, epoch: Epoch, reading: Reading) -> pa.Table:
        """See `Engine.read`."""
        return self.run(epoch, self._reader.records(epoch, reading), is_small=False)

    def roll_back(self, epoch: Epoch) -> None:
        """See `Engine.roll_back`."""
        program = self._program
        if not has_lanes(program):
            return
        self._on_step("engine.before_roll_back")
        StateDirectory(program.directory, program.application_id).fence(program.incarnation, epoch.attempt.number)
        for lane in range(program.lanes):
            roll_back_lane(Assignment(program, epoch, lane=lane))

    def migrate(self, epoch: Epoch, step: MigrationStep) -> pa.Table:
        """See `Engine.migrate`."""
        return pa.concat_tables(step(Assignment(self._program, epoch, lane=lane)) for lane in range(self._program.lanes))

    @property
    def server_of(self) -> None:
        """See `Engine.server_of`: all files are here."""

    def changed(self) -> bool:
        """See `Engine.changed`: lanes stay."""
        return False

    @property
    def whereabouts(self) -> Whereabouts:
        """See `Engine.whereabouts`."""
        return Whereabouts("simulated", {"here": 1}, "threads")
