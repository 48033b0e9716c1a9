"""The walk of an epoch through a program: the steps that every engine takes, in order. Between two steps, rows change lanes.

It says what runs, not where: an engine carries a step to its lanes, and rows from one step to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from penstock.epochs.entry import needs_entry
from penstock.epochs.program import Program
from penstock.epochs.wire import OUT, WIRE


class Act(Enum):
    """What the tasks of a step do."""

    ENTER = "records enter where they were read"
    RUN = "each lane runs a stage"
    SECTION = "the first lane runs an atomic section"
    APPLY = "each lane writes what the section has changed"


@dataclass(frozen=True, slots=True)
class Step:
    """One step. An entering step also runs its stage if that needs no lanes. A first step has records from topics."""

    act: Act
    stage: int
    is_first: bool
    is_last: bool

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows that it returns."""
        return OUT if self.is_last else WIRE

    def __str__(self) -> str:
        records = ", from topics" if self.is_first else ""
        return f"stage {self.stage}: {self.act.value}{records}{', to Kafka' if self.is_last else ''}"


Walk = tuple[Step, ...]


def walk_of(program: Program, *, has_entry: bool = False) -> Walk:
    """Return the steps of an epoch. If it `has_entry`, records enter, even if they could go straight to their lanes."""
    return tuple(_steps(program, has_entry or needs_entry(program)))


def _steps(program: Program, has_entry: bool) -> Iterator[Step]:
    stages, is_first_free = range(len(program.plan.stages)), not program.needs_lanes(0)
    last, enters = stages[-1], is_first_free or has_entry
    if enters:
        yield Step(Act.ENTER, 0, is_first=True, is_last=is_first_free and last == 0)
    for stage in stages[1 if is_first_free else 0 :]:
        is_first, is_last = not enters and stage == 0, stage == last
        if program.is_spread and program.plan.stages[stage].is_serial:
            yield Step(Act.SECTION, stage, is_first, is_last=False)
            yield Step(Act.APPLY, stage, is_first=False, is_last=is_last)
        else:
            yield Step(Act.RUN, stage, is_first, is_last)
