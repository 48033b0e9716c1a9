"""What is done to an application on a cluster."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial

from verification.chaos.application import Part
from verification.chaos.rows.row import Row
from verification.cluster.trial import ClusterTrial
from verification.harness.spark_cluster import Host

FULL, QUICK = "full", "quick"


def _hosts_at_random(times: int, trial: ClusterTrial) -> Iterator[Host]:
    """Start the application, and yield hosts at random moments."""
    chooser = random.Random(trial.world.seed)
    trial.start()
    for _ in range(times):
        time.sleep(chooser.uniform(0, 1.5))
        yield chooser.choice(list(trial.cluster.hosts.values()))


def executors(kills: int, trial: ClusterTrial) -> None:
    """Kill executors at random moments."""
    for host in _hosts_at_random(kills, trial):
        trial.kill_executor(host)
    trial.finish()


def hosts(losses: int, trial: ClusterTrial) -> None:
    """Lose hosts with all their processes; they return with the files that they had."""
    for host in _hosts_at_random(losses, trial):
        trial.lose_host(host)
        host.start()
        trial.see_progress()
    trial.finish()


def zombies(count: int, trial: ClusterTrial) -> None:
    """Hosts that were given up wake up, and their tasks continue."""
    for host in _hosts_at_random(count, trial):
        trial.make_zombie(host)
    trial.finish()


def drivers(kills: int, trial: ClusterTrial) -> None:
    """Kill the driver, whose executors outlive it for a moment, or everything but the cluster."""
    chooser = random.Random(trial.world.seed)
    trial.start()
    for _ in range(kills):
        trial.see_progress()
        time.sleep(chooser.uniform(0, 1.5))
        trial.kill(chooser.choice((Part.DRIVER, Part.ALL)))
        trial.come_back()
    trial.finish()


def grown(times: int, trial: ClusterTrial) -> None:
    """Add a host, and remove it again when lanes have moved to it."""
    trial.start()
    for _ in range(times):
        trial.see_progress()
        with trial.hurting():
            host = trial.cluster.add()
        trial.see_progress()
        trial.lose_host(host)
        trial.cluster.forget(host)
    trial.finish()


def _row(name: str, quick: int, full: int) -> dict[str, Row]:
    run = {"executors": executors, "hosts": hosts, "zombies": zombies, "drivers": drivers, "grown": grown}[name]
    return {which: Row(name, partial(run, count), trial=ClusterTrial) for which, count in ((QUICK, quick), (FULL, full))}


_FAULTS = (
    _row("executors", 3, 70),
    _row("hosts", 2, 30),
    _row("zombies", 1, 10),
    _row("drivers", 2, 20),
    _row("grown", 1, 10),
)
ROWS = {row[FULL].name: row for row in _FAULTS}
