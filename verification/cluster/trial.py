"""A row of the campaign on a cluster: the application of `verification.chaos` on several hosts."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from verification.chaos import guards
from verification.chaos.checker import Found, Violation
from verification.chaos.trial import FIRE_S, Conditions, Trial, World
from verification.harness.spark_cluster import Host, SparkCluster

if TYPE_CHECKING:
    from typing_extensions import Self

HOSTS = 3
TIMEOUT_S = "10s"
"""After this time Spark gives up a host that does not answer."""


class ClusterTrial(Trial):
    """An application on a cluster of its own."""

    host_cores = 3
    """With six lanes: two slots on each host, and a core for those of another one."""
    host_memory = "1g"
    more_spark: ClassVar[Mapping[str, str]] = {}
    """Settings of Spark that override those of the cluster."""

    def __init__(self, world: World, name: str, conditions: Conditions, guard_off: str = "") -> None:
        self.cluster = SparkCluster(HOSTS, cores=self.host_cores, memory=self.host_memory)
        spark = {
            **self.cluster.settings,
            "spark.driver.memory": "1g",
            "spark.network.timeout": TIMEOUT_S,
            "spark.executor.heartbeatInterval": "1s",
            f"spark.executorEnv.{guards.VARIABLE}": guard_off,
            **self.more_spark,
        }
        self._spark = spark
        self._dying = 0
        environment = {"CHAOS_SPARK": json.dumps(spark), "PENSTOCK_LANES": "6", **conditions.settings}
        super().__init__(world, name, replace(conditions, settings=environment), guard_off)

    def __enter__(self) -> Self:
        self._stack.enter_context(self.cluster)
        super().__enter__()
        return self

    def check_files(self, found: Found) -> Iterator[Violation]:
        """Check nothing: each host has the stores that it had last."""
        return iter(())

    def restart_cold(self) -> None:
        """Restart without the files of any host."""
        for host in self.cluster.hosts.values():
            shutil.rmtree(host.state_dir, ignore_errors=True)
        super().restart_cold()

    def start_with_dying_writers(self, faults: Sequence[str]) -> None:
        """Start the application; its Python workers die at these fault points, each once."""
        self._dying += 1
        directory = self.directory / f"writers-{self._dying:03}"
        armed = {"PENSTOCK_FAULT": ",".join(f"{fault}:kill" for fault in faults), "PENSTOCK_FAULT_DIR": str(directory)}
        spark = {**self._spark, **{f"spark.executorEnv.{name}": value for name, value in armed.items()}}
        self.start(CHAOS_SPARK=json.dumps(spark))
        for number in range(1, len(faults) + 1):
            with self.hurting():
                self.tend("a writer dies", partial(_has_lines, directory / "fired", number), FIRE_S)
            self.kills += 1

    # ---- hosts ----------------------------------------------------------------------------------------------------

    def kill_executor(self, host: Host) -> None:
        """Kill the executor of a host; it gets a new one."""
        self.see_progress()
        with self.hurting():
            if not host.kill_executor():
                self.stuck("an executor is killed", f"{host.address} has none")
        self.kills += 1

    def lose_host(self, host: Host) -> None:
        """Kill everything on a host."""
        self.see_progress()
        with self.hurting():
            host.kill()
        self.kills += 1

    def make_zombie(self, host: Host) -> None:
        """Suspend a host until its lanes run elsewhere and some epochs have followed, and let it continue."""
        self.see_progress()
        with self.hurting():
            host.pause()
        for _ in range(2):
            self.see_progress()
        host.resume()
        time.sleep(1)
        self.see_progress()


class GrowingTrial(ClusterTrial):
    """An application with fewer slots than lanes, so that another host gets some of them."""

    host_cores = 2


def _has_lines(path: Path, least: int) -> bool:
    return path.exists() and len(path.read_text(encoding="utf-8").splitlines()) >= least
