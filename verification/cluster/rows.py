"""What is done to an application on a cluster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from verification.chaos.application import Part
from verification.chaos.rows.row import Row
from verification.chaos.trial import FIRE_S, Conditions, Trial
from verification.cluster.trial import ClusterTrial, GrowingTrial
from verification.harness.spark_cluster import Host

FULL, QUICK = "full", "quick"
WRITER_POINTS = ("writer.after_open", "writer.mid_write", "writer.after_write")
DRIVER_POINTS = ("transactions.before_end", "transactions.after_end")


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
        trial.tend("lanes move to the new host", host.has_lanes, FIRE_S)
        trial.see_progress()
        trial.lose_host(host)
        trial.cluster.forget(host)
    trial.finish()


def writers(rounds: int, trial: ClusterTrial) -> None:
    """Kill writers before, while and after they write, and the driver around the end of a transaction."""
    chooser = random.Random(trial.world.seed)
    for _ in range(rounds):
        trial.start_with_dying_writers([f"{point}:{chooser.randrange(5, 30)}" for point in WRITER_POINTS])
        trial.kill(Part.DRIVER)
        for point in DRIVER_POINTS:
            trial.kill_at(f"{point}:{chooser.randrange(2, 9)}:kill")
    trial.come_back()
    trial.finish()


def returned(times: int, trial: ClusterTrial) -> None:
    """Hosts return with an epoch that was never committed, while another start has committed one with the same number."""
    chooser = random.Random(trial.world.seed)
    for _ in range(times):
        trial.kill_at(f"epoch.after_job:{chooser.randrange(2, 9)}:kill")
        host = chooser.choice(list(trial.cluster.hosts.values()))
        host.kill()
        trial.kills += 1
        trial.kill_at("transactions.after_end:1:kill")
        host.start()
        trial.come_back()
        trial.kill(Part.DRIVER)
    trial.come_back()
    trial.finish()


_EXECUTORS_WRITE, _DRIVER_WRITES = (Conditions(settings={"PENSTOCK_WRITERS": who}) for who in ("executors", "driver"))
_MORE_LANES = Conditions(settings={**_EXECUTORS_WRITE.settings, "PENSTOCK_LANES": "8"})
_FAULTS: Mapping[str, tuple[Callable[[int, ClusterTrial], None], int, int, Conditions]] = {
    "executors": (executors, 3, 20, _EXECUTORS_WRITE),
    "hosts": (hosts, 2, 6, _EXECUTORS_WRITE),
    "zombies": (zombies, 1, 5, _EXECUTORS_WRITE),
    "drivers": (drivers, 2, 10, _EXECUTORS_WRITE),
    "grown": (grown, 1, 5, _MORE_LANES),
    "writers": (writers, 1, 3, _EXECUTORS_WRITE),
    "returned": (returned, 1, 3, _EXECUTORS_WRITE),
    "executors-driver-writes": (executors, 3, 10, _DRIVER_WRITES),
    "zombies-driver-writes": (zombies, 1, 2, _DRIVER_WRITES),
    "drivers-driver-writes": (drivers, 1, 3, _DRIVER_WRITES),
}
"""What is done, how often in a quick campaign and in a full one, and under which conditions."""

_TRIALS: Mapping[str, type[Trial]] = {"grown": GrowingTrial}
ROWS = {
    name: {
        which: Row(name, partial(run, count), conditions, trial=_TRIALS.get(name, ClusterTrial))
        for which, count in ((QUICK, few), (FULL, many))
    }
    for name, (run, few, many, conditions) in _FAULTS.items()
}
GUARDED_BY = {"write_ids": "returned"}
"""The guards that can be turned off, each with the row that must go red then."""
