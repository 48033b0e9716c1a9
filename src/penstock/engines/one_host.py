"""`OneHost`: an engine whose slots share the files of this host, so that any of them can run any lane."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.engines.carrier import Carrier, Errand
from penstock.engines.connections import socket_directory
from penstock.engines.exchanging import Listen
from penstock.engines.port import Batches, OnProgress, Whereabouts
from penstock.engines.reading import Reading
from penstock.engines.requests import Load, Migrate, RestoreLane, RollBack, RunEpoch
from penstock.engines.slots import Slot, Slots
from penstock.epochs.in_process import collected
from penstock.epochs.migration import MigrationStep
from penstock.epochs.program import Epoch, Program, keeps_processors
from penstock.epochs.restore import ReadChangelog, Restored
from penstock.epochs.standing import Committed
from penstock.epochs.state_directory import StateDirectory
from penstock.epochs.wire import OUT, in_order_of_causes


class OneHost:
    """Runs a program on slots of this host. An epoch may take `patience_s`; `name` and `kind` say what the slots are."""

    def __init__(self, program: Program, slots: Slots, patience_s: float, name: str, kind: str) -> None:
        self._program = program
        self._keeps_processors = keeps_processors(program)
        self._slots = slots
        self._inboxes: Path | None = None
        self._carrier = Carrier(program, slots.slot, patience_s, self._listen)
        self._name = name
        self._kind = kind

    def start(self) -> None:
        """See `Engine.start`."""
        self._slots.start()

    def warm(self) -> None:
        """See `Engine.warm`."""
        self._carrier.run([Errand(position, Load()) for position in range(self._slots.size)])

    def place(
        self, committed: Committed, read: ReadChangelog, on_progress: OnProgress, distrusted: Collection[int] = ()
    ) -> Sequence[Restored]:
        """See `Engine.place`: all lanes are here already."""
        requests = [RestoreLane(lane, committed, read, is_retry=lane in distrusted) for lane in range(self._program.lanes)]
        return self._carrier.restore(self._positions, requests, on_progress)

    def run(self, epoch: Epoch, records: Batches, *, is_small: bool) -> pa.Table:
        """See `Engine.run`."""
        self._slots.turn(epoch.number)
        if (is_small or not records) and (self._slots.size == 1 or not self._keeps_processors):
            return collected(self._carrier.run([Errand(0, RunEpoch(epoch), records)]), OUT)
        return in_order_of_causes(self._carrier.take_steps(epoch, records, self._positions, range(self._slots.size)))

    def read(self, epoch: Epoch, reading: Reading) -> pa.Table:
        """See `Engine.read`."""
        self._slots.turn(epoch.number)
        rows = self._carrier.take_steps_in_slots(epoch, reading, self._positions, range(self._slots.size))
        return in_order_of_causes(rows)

    def roll_back(self, epoch: Epoch) -> None:
        """See `Engine.roll_back`: the directory of the stores refuses earlier attempts."""
        program = self._program
        if not any(program.needs_lanes(stage) for stage in range(len(program.plan.stages))):
            return
        if epoch.attempt.number:
            StateDirectory(program.directory, program.application_id).fence(program.incarnation, epoch.attempt.number)
        self._carrier.run([Errand(0, RollBack(epoch, tuple(range(program.lanes))))])

    def migrate(self, epoch: Epoch, step: MigrationStep) -> pa.Table:
        """See `Engine.migrate`."""
        lanes = enumerate(self._positions)
        return collected(self._carrier.run([Errand(at, Migrate(epoch, step, (lane,))) for lane, at in lanes]), OUT)

    @property
    def server_of(self) -> None:
        """See `Engine.server_of`."""

    def changed(self) -> bool:
        """See `Engine.changed`: lanes stay here."""
        return False

    @property
    def whereabouts(self) -> Whereabouts:
        """See `Engine.whereabouts`."""
        return Whereabouts(self._name, self._slots.hosts, self._kind)

    def close(self) -> None:
        """See `Engine.close`."""
        self._carrier.close()
        self._slots.close()
        if self._inboxes is not None:
            shutil.rmtree(self._inboxes, ignore_errors=True)

    def _listen(self, slot: Slot) -> Listen:
        if self._inboxes is None:
            self._inboxes = socket_directory("inboxes")
        return Listen(self._inboxes, b"")

    @property
    def _positions(self) -> list[int]:
        """The position of each lane's slot."""
        return [lane % self._slots.size for lane in range(self._program.lanes)]
