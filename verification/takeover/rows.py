"""What is done to the active instance."""

from __future__ import annotations

import random
import time
from functools import partial

from verification.chaos.application import Part
from verification.chaos.rows.row import Row
from verification.chaos.trial import Conditions
from verification.takeover.figures import Taken
from verification.takeover.trial import FENCED, OnCluster, OnOneMachine, StandbyTrial

SILENCE = "3s"
UNPREPARED_EVERY = 5
"""One kill in so many comes while the standby is still starting; these have figures of their own."""

Figures = dict[str, list[Taken]]


def kills(count: int, standbys: int, figures: Figures, trial: StandbyTrial) -> None:
    """Kill the active instance at random moments: its driver, or all of its processes."""
    chooser = random.Random(f"{trial.world.seed} {trial.name}")
    trial.begin(standbys)
    for number in range(count):
        is_prepared = number % UNPREPARED_EVERY != UNPREPARED_EVERY - 1
        if is_prepared:
            trial.await_standbys()
        time.sleep(chooser.uniform(0, 1.5))
        taken = trial.kill_active(chooser.choice((Part.DRIVER, Part.ALL)))
        figures.setdefault(trial.name if is_prepared else f"{trial.name}-unprepared", []).append(taken)
    trial.finish()


def stops(count: int, figures: Figures, trial: StandbyTrial) -> None:
    """Stop the active instance, one after the other, as an upgrade does."""
    trial.begin(1)
    for _ in range(count):
        trial.await_standbys()
        figures.setdefault(trial.name, []).append(trial.stop_active())
    trial.finish()


def silence(count: int, figures: Figures, trial: StandbyTrial) -> None:
    """Suspend the active instance: it says nothing, but its connections stay open; later it wakes up."""
    trial.begin(1)
    for _ in range(count):
        trial.await_standbys()
        figures.setdefault(trial.name, []).append(trial.suspend_active())
    trial.finish()


def rows_on(engine: str, count: int, figures: Figures) -> list[Row]:
    """All rows, on an engine of this machine; `kills` has so many, the others fewer."""
    settings, some = {"PENSTOCK_ENGINE": engine}, max(2, count // 5)
    normal = Conditions(settings=settings)
    quiet = Conditions(settings={**settings, "PENSTOCK_STANDBY_TIMEOUT": SILENCE}, exits=frozenset({FENCED}))
    return [
        Row("kills", partial(kills, count, 1, figures), normal, trial=OnOneMachine),
        Row("kills-two-standbys", partial(kills, some, 2, figures), normal, trial=OnOneMachine),
        Row("kills-other-host", partial(kills, some, 1, figures), normal, trial=StandbyTrial),
        Row("stops", partial(stops, some, figures), normal, trial=OnOneMachine),
        Row("silence", partial(silence, some, figures), quiet, trial=StandbyTrial),
    ]


def cluster_rows(count: int, figures: Figures) -> list[Row]:
    """Kills, on a Spark cluster, where the driver writes, or executors do."""
    written = Conditions(settings={"PENSTOCK_WRITERS": "executors"})
    return [
        Row("kills-on-cluster", partial(kills, count, 1, figures), trial=OnCluster),
        Row("kills-while-executors-write", partial(kills, max(2, count // 5), 1, figures), written, trial=OnCluster),
    ]
