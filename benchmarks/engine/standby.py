"""A standby on one machine that is ready, with a JVM and slots of its own: SIGKILL of the active instance to the next commit.

It is the trial of `make takeover` with the default engine; it also checks all results in the end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from functools import partial
from random import Random
from typing import Any

from benchmarks.bench import Bench
from benchmarks.engine.group import Figures, Group, Round, Row, in_tasks
from verification.chaos import campaign
from verification.chaos.application import Part
from verification.chaos.rows.row import Row as ChaosRow
from verification.harness.processes import HarnessError
from verification.takeover.figures import Taken
from verification.takeover.trial import OnOneMachine

FIGURE = "SIGKILL to the next commit, s"
SEED = 1
_RUNS = re.compile(r"runs with engine (\w+): (\d+) (.+) \(")


def measure(bench: Bench) -> Iterator[Round]:
    """A kill is a round."""
    found: list[Taken] = []
    ran_on: dict[str, Any] = {}
    with campaign.world(SEED, keep=False, settings={}) as world:
        row = ChaosRow("warm-standby", partial(_kills, bench.options.rounds, found, ran_on), trial=OnOneMachine)
        report = campaign.run_row(world, row)
    if report.violations:
        raise HarnessError(f"{report.violations} violations: {report.details}")
    for taken in found:
        yield Round({FIGURE: taken.seconds, **{f"{step}, s": seconds for step, seconds in taken.steps.items()}}, in_tasks(ran_on))


def rows(medians: Figures) -> Iterable[Row]:
    """The time, and what it is made of."""
    yield Row("a warm standby on one machine: s from SIGKILL to the next commit", medians[FIGURE], 2, tuple(medians))


def _kills(count: int, found: list[Taken], ran_on: dict[str, Any], trial: OnOneMachine) -> None:
    """Kill all processes of the active instance, each time when the standby is ready."""
    chance = Random(SEED)
    trial.begin(1)
    for _ in range(count):
        trial.await_standbys()
        time.sleep(chance.uniform(0, 1.5))
        found.append(trial.kill_active(Part.ALL))
    engine, slots, kind = _RUNS.findall(trial.application.log.read_text(errors="replace"))[-1]
    ran_on |= {"engine": engine, "slots": int(slots), "spark_tasks": int(slots) if kind == "Spark tasks" else 0, "hosts": 1}
    trial.finish()


GROUP = Group("standby", 4, measure, rows)
