"""(B) on a Spark cluster with 1, 2 and 3 executors, beside Spark by itself on the same cluster: `make bench-engine` measures it.

Both share two cores with the broker and with each other's processes, so the rates say little; how they grow can be compared. On
each executor there is one lane, or one task of Spark's. Penstock's executors have another core, which lanes leave to other jobs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.applications.spark_app import CLUSTER
from benchmarks.bench import Bench
from benchmarks.measurements.throughput import measure
from benchmarks.sides.application import Application
from benchmarks.sides.job import Job, Side
from benchmarks.sides.penstock import Penstock
from benchmarks.sides.spark import Spark
from benchmarks.workloads.loading import Loaded
from penstock.spark.encryption import secured
from verification.harness.broker import Broker
from verification.harness.spark_cluster import SparkCluster

EXECUTORS = (1, 2, 3)
SPARE = 1
"""Cores of an executor beside the one of its lane."""


@dataclass(frozen=True, slots=True)
class PenstockOnCluster(Penstock):
    """Penstock with a file of settings for the cluster."""

    writers: str = "driver"

    def environment(self, job: Job) -> Mapping[str, str]:
        """Who writes."""
        return {**Penstock.environment(self, job), "PENSTOCK_WRITERS": self.writers}


SECURED = secured({})
"""What Penstock sets by itself, and Spark has to be told: the master refuses what is weaker."""

SIDES: dict[str, Side] = {
    "penstock": PenstockOnCluster(),
    "penstock, executors write": PenstockOnCluster(writers="executors"),
    "spark": Spark("500000"),
}


def against_spark(rates: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """Return each side's growth from one executor to all, as a share of that of Spark by itself."""
    growth = {name: own[EXECUTORS[-1]] / own[EXECUTORS[0]] for name, own in rates.items()}
    return {name: round(found / growth["spark"], 2) for name, found in growth.items() if name != "spark"}


def rate(bench: Bench, broker: Broker, cluster: SparkCluster, side: Side, loaded: Loaded, executors: int) -> float:
    """Return the records per second of one run with so many executors."""
    cores = 1 if isinstance(side, Spark) else 1 + SPARE
    shared = {"spark.executor.cores": str(cores), "spark.cores.max": str(cores * executors), "spark.driver.memory": "1g"}
    settings = {**cluster.settings, **shared}
    write_settings(bench.directory, settings)
    with bench.job(broker, side, "B", loaded.workload.topology, loaded.sources, cores=executors) as job:
        environment = {CLUSTER: json.dumps({**settings, **SECURED})}
        return measure(Application(side, job, environment), loaded, broker.pid).per_s


def write_settings(directory: Path, spark: Mapping[str, str]) -> None:
    """Write the file of settings for applications that run in a directory."""
    lines = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in spark.items())
    (directory / "penstock.toml").write_text(f"[spark]\n{lines}\n", encoding="utf-8")
