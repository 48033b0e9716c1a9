"""`Assignment`: the work of a task in an epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.epochs.program import Epoch, Program
from penstock.epochs.shards import shards_of


@dataclass(frozen=True, slots=True)
class Assignment:
    """A stage of an epoch on one lane. A task that reads records from topics works for the first stage, on any lane."""

    program: Program
    epoch: Epoch
    stage: int = 0
    lane: int = 0

    def at(self, stage: int, lane: int) -> Assignment:
        """Return the assignment for another stage or lane of the same epoch."""
        return replace(self, stage=stage, lane=lane)

    @property
    def shards(self) -> range:
        """The shards that the lane runs."""
        return shards_of(self.lane, self.program.shards, self.program.lanes)

    @property
    def is_serial(self) -> bool:
        """Whether the stage is an atomic section, which one task runs on all lanes."""
        return self.program.plan.stages[self.stage].is_serial

    @property
    def needs_lanes(self) -> bool:
        """Whether the stage has to run on the lanes of its keys."""
        return self.program.needs_lanes(self.stage)
