"""`python -m benchmarks.cluster`: (B) on a Spark cluster with 1, 2 and 3 executors, beside Spark by itself on the same cluster.

Both share two cores with the broker and with each other's processes, so the rates say little; how they grow can be compared. On
each executor there is one lane, or one task of Spark's. Penstock's executors have another core, which lanes leave to other jobs.
Writes reports/bench-cluster.json and prints its figures.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.applications.spark_app import CLUSTER
from benchmarks.bench import Bench, Options
from benchmarks.measurements.throughput import measure
from benchmarks.report.report import Report
from benchmarks.sides.application import Application
from benchmarks.sides.job import Job, Side
from benchmarks.sides.penstock import Penstock
from benchmarks.sides.spark import Spark
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.loading import Loaded, load
from verification.harness.broker import Broker
from verification.harness.spark_cluster import SparkCluster

REPORT = Path("reports/bench-cluster.json")
EXECUTORS = (1, 2, 3)
SPARE = 1
"""Cores of an executor beside the one of its lane."""
GOAL = 0.1
"""The growth of both may differ by this share."""


@dataclass(frozen=True, slots=True)
class PenstockOnCluster(Penstock):
    """Penstock with a file of settings for the cluster."""

    writers: str = "driver"

    def environment(self, job: Job) -> Mapping[str, str]:
        """Who writes."""
        return {**Penstock.environment(self, job), "PENSTOCK_WRITERS": self.writers}


SECURED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
"""What Penstock sets by itself, and Spark has to be told."""

SIDES: dict[str, Side] = {
    "penstock": PenstockOnCluster(),
    "penstock, executors write": PenstockOnCluster(writers="executors"),
    "spark": Spark("500000"),
}


def main(arguments: list[str] | None = None) -> int:
    """Measure all sides with each number of executors; return 0 even if the goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="bench-cluster-"))
    about = Report(options.report, {"rounds": options.rounds, "records": options.records})
    bench = Bench(directory, Options(rounds=options.rounds), about)
    rates: dict[str, dict[int, list[float]]] = {name: {count: [] for count in EXECUTORS} for name in SIDES}
    try:
        with bench.broker() as broker, SparkCluster(len(EXECUTORS), cores=1 + SPARE) as cluster:
            loaded = load(broker.bootstrap_servers, WORKLOADS["B"], options.records)
            for _ in range(options.rounds):
                for count in EXECUTORS:
                    for name, side in SIDES.items():
                        rates[name][count].append(rate(bench, broker, cluster, side, loaded, count))
                        print(f"{name}, {count} executors: {rates[name][count][-1]:,.0f} records/s", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report = figures({name: {count: median(found) for count, found in own.items()} for name, own in rates.items()})
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps({**about.content, **report}, indent=2) + "\n", encoding="utf-8")
    for name, ratio in report["scaling_ratio"].items():
        grown = " ".join(f"{count}: {rate:,.0f}" for count, rate in report["per_s"][name].items())
        print(f"{name}: records/s by executors {grown}; growth against Spark's {ratio:.2f} (goal: within {GOAL:.0%} of 1)")
    return 0


def figures(rates: Mapping[str, Mapping[int, float]]) -> dict[str, dict[str, Any]]:
    """Return the rates, their growth from one executor to all, and that growth against Spark's."""
    growth = {name: own[EXECUTORS[-1]] / own[EXECUTORS[0]] for name, own in rates.items()}
    return {
        "per_s": {name: {count: round(rate) for count, rate in own.items()} for name, own in rates.items()},
        "growth": {name: round(found, 2) for name, found in growth.items()},
        "scaling_ratio": {name: round(found / growth["spark"], 2) for name, found in growth.items() if name != "spark"},
    }


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


if __name__ == "__main__":
    sys.exit(main())
