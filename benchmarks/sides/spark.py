"""Spark Structured Streaming by itself: native operators only, state in RocksDB with a changelog, a Kafka sink.

Its sink is at least once: after a failure results may be there twice. Nothing fails in a measurement.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.sides.job import Job
from benchmarks.sides.penstock import APPLICATIONS
from benchmarks.sides.progress import CheckpointProgress

LEFT_OUT = {
    "foreign-keys": "Spark has no join of two changing tables: neither side of a stream–stream join is ever replaced",
    "rekeyed": "an aggregation of an aggregation is only possible in append mode, so with windows and watermarks",
}
BATCH_RECORDS = (100_000, 500_000)
"""`maxOffsetsPerTrigger`: smaller batches commit more often, larger ones cost less for each record."""


@dataclass(frozen=True, slots=True)
class Spark:
    """As many shuffle partitions as cores."""

    settings: str = "500000"
    name: str = "spark"
    share: float = 1.0
    keeps_late: bool = True
    follows_tables: bool = False

    def excuse(self, topology: str) -> str | None:
        """Not everything is possible with native operators."""
        return LEFT_OUT.get(topology) or (LEFT_OUT["rekeyed"] if topology.startswith("depth-") else None)

    def command(self, job: Job) -> list[str]:
        """The command that starts it."""
        where = [str(job.state_dir), job.bootstrap_servers, str(job.cores), self.settings]
        return [sys.executable, str(APPLICATIONS / "spark_app.py"), job.topology, ",".join(job.sources), job.sink, *where]

    def environment(self, job: Job) -> Mapping[str, str]:
        """It needs none."""
        return {}

    def progress(self, job: Job) -> CheckpointProgress:
        """By its checkpoint: it has no consumer group."""
        return CheckpointProgress(job, job.state_dir / "checkpoint", emits_late=job.topology == "sessions")

    def epoch_phases(self, job: Job) -> Mapping[str, float]:
        """It reports none outside its process."""
        return {}

    def runs_on(self, job: Job) -> Mapping[str, Any]:
        """It is a rival."""
        return {}


def candidates() -> list[Spark]:
    """The sizes of its batches."""
    return [Spark(str(records)) for records in BATCH_RECORDS]


@dataclass(frozen=True, slots=True)
class SparkRealTime(Spark):
    """Its Real-Time Mode, Kafka to Kafka, without state, at least once; a core for each partition, as its tasks do not end."""

    settings: str = "real-time"
    name: str = "spark-real-time"

    def excuse(self, topology: str) -> str | None:
        """It has no state."""
        return None if topology == "passed-on" else "its Real-Time Mode is measured without state only"

    def command(self, job: Job) -> list[str]:
        """The command that starts it."""
        return Spark.command(self, replace(job, cores=job.partitions))
