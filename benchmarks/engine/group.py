"""What a group of figures is: it measures in rounds, and makes rows with goals of the medians."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bench import Bench
from benchmarks.report.statistics import medians
from verification.harness.processes import HarnessError

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Round:
    """The figures of a round, and where the lanes in Spark's tasks ran: engine, slots, Spark tasks, hosts."""

    figures: Figures
    ran_on: Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A figure that is made of others, and the most or the least that it should be."""

    name: str
    measured: float
    goal: float
    of: Sequence[str] = ()
    """The figures that it is made of."""
    is_most: bool = True

    @property
    def reached(self) -> bool:
        """Whether it is reached."""
        return self.measured <= self.goal if self.is_most else self.measured >= self.goal


@dataclass(frozen=True)
class Group:
    """Figures that are measured together. `minutes` is what five rounds take on two cores with nothing else to do."""

    name: str
    minutes: int
    measure: Callable[[Bench], Iterator[Round]]
    """Measures, and yields each round as it ends."""
    rows: Callable[[Figures], Iterable[Row]]
    """Makes rows of medians."""


def rows_of(group: Group, rounds: Sequence[Round]) -> dict[str, dict[str, Any]]:
    """The rows of some rounds by name, as JSON values."""
    ran_on = rounds[0].ran_on
    if any(each.ran_on != ran_on for each in rounds):
        raise HarnessError(f"the rounds of {group.name} ran on different slots: {[dict(each.ran_on) for each in rounds]}")
    return {
        row.name: {
            "goal": row.goal,
            "is": "at most" if row.is_most else "at least",
            "measured": float(f"{row.measured:.4g}"),
            "reached": row.reached,
            "group": group.name,
            "rounds": len(rounds),
            **ran_on,
            "of": {name: [float(f"{each.figures[name]:.4g}") for each in rounds if name in each.figures] for name in row.of},
        }
        for row in group.rows(medians([each.figures for each in rounds]))
    }


def in_tasks(ran_on: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where lanes ran; raises unless that was in Spark's tasks, because the figure would be of something else."""
    if ran_on.get("engine") != "spark" or not 0 < ran_on["slots"] == ran_on["spark_tasks"]:
        raise HarnessError(f"lanes did not run in Spark's tasks: {dict(ran_on)}")
    return ran_on
