"""Penstock compared with Kafka Streams, in the same run: throughput, latency, cold restore and memory.

Usage: python -m benchmarks.first [--only throughput|latency|restore] [--side penstock|kafka-streams] [--records N] …

A full run writes reports/bench-first.json; a part only prints its figures.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from benchmarks.first import latency, report, restore, throughput, workload
from benchmarks.first.applications import Application
from benchmarks.first.sides import Job, KafkaStreams, Penstock, Side
from verification.harness.broker import Broker

REPORT = Path("reports/bench-first.json")
BROKER = {"log.cleaner.backoff.ms": "15000"}  # Kafka's default: that of the harness keeps the cleaner busy
COMMIT_INTERVALS_MS = (100, 1000)
SETTLE_S, QUIET_FOR_S, QUIET_PERCENT = 60, 3, 10
LARGER = {  # than the defaults: a cache for all keys, and larger requests to and from the broker
    "statestore.cache.max.bytes": str(256 << 20),
    "max.poll.records": "5000",
    "buffered.records.per.partition": "5000",
    "producer.batch.size": str(256 << 10),
}


def sides(only: str | None, rivals: Sequence[KafkaStreams]) -> list[Side]:
    """The sides; Penstock runs first, while the broker is cold."""
    both: list[Side] = [Penstock(), *rivals]
    return [side for side in both if only is None or side.name.startswith(only)]


def rival(commit_interval_ms: int, *, is_larger: bool = False) -> KafkaStreams:
    """Kafka Streams with these settings."""
    settings = {"commit.interval.ms": str(commit_interval_ms), **(LARGER if is_larger else {})}
    return KafkaStreams(f"kafka-streams-{commit_interval_ms}ms{'-larger' if is_larger else ''}", settings)


class Bench:
    """A broker, a directory, and the figures so far."""

    def __init__(self, broker: Broker, directory: Path, options: argparse.Namespace) -> None:
        self.broker = broker
        self.directory = directory
        self.options = options
        self.figures: dict[str, dict[str, dict[str, Any]]] = {}

    def job(self, measurement: str, side: Side, topology: str, source: str) -> Job:
        """A new job with its own name, sink and state, on a broker that has finished cleaning up after the last one."""
        self._settle()
        name = f"{measurement}-{side.name}"
        workload.create(self.broker.bootstrap_servers, f"{name}-out")
        return Job(
            application_id=name,
            topology=topology,
            source=source,
            sink=f"{name}-out",
            bootstrap_servers=self.broker.bootstrap_servers,
            state_dir=self.directory / name,
        )

    def _settle(self) -> None:
        """Wait until the broker is idle: it compacts an application's changelogs for a while."""
        broker, end = psutil.Process(self.broker.pid), time.monotonic() + SETTLE_S
        quiet = 0
        while quiet < QUIET_FOR_S and time.monotonic() < end:
            quiet = quiet + 1 if broker.cpu_percent(1.0) < QUIET_PERCENT else 0

    def note(self, measurement: str, side: Side, figures: Any) -> None:
        """Record the figures and print them at once."""
        found = report.rounded(asdict(figures))
        self.figures.setdefault(measurement, {})[side.name] = found
        print(f"{measurement}: {side.name}: {json.dumps(found)}", flush=True)

    def throughput(self) -> None:
        """Measure count and sum per key of all records, cold and warm."""
        records = workload.random_keys(2 * self.options.records, self.options.keys)
        loaded = workload.load(self.broker.bootstrap_servers, "records", records)
        rivals = [rival(interval, is_larger=larger) for larger in (False, True) for interval in COMMIT_INTERVALS_MS]
        for side in sides(self.options.side, rivals):
            job = self.job("throughput", side, "totals", loaded.topic)
            self.note("throughput", side, throughput.measure(Application(side, job), job, loaded, self.broker.pid))

    def latency(self) -> None:
        """Measure latency at a steady rate, without and with two re-keys."""
        for measurement, topology in (("latency", "totals"), ("latency-rekeyed", "rekeyed")):
            for side in sides(self.options.side, [rival(COMMIT_INTERVALS_MS[0])]):
                source = f"{measurement}-{side.name}-in"
                workload.create(self.broker.bootstrap_servers, source)
                job = self.job(measurement, side, topology, source)
                found = latency.measure(
                    Application(side, job),
                    job,
                    rate=self.options.rate,
                    warm_up_s=self.options.warm_up,
                    seconds=self.options.seconds,
                )
                self.note(measurement, side, found)

    def restore(self) -> None:
        """Measure a restore of as many keys as records."""
        loaded = workload.load(self.broker.bootstrap_servers, "many-keys", workload.each_key_once(self.options.records))
        for side in sides(self.options.side, [rival(COMMIT_INTERVALS_MS[0])]):
            job = self.job("restore", side, "totals", loaded.topic)
            self.note("restore", side, restore.measure(lambda: Application(side, job), job, loaded))  # noqa: B023 - called at once


def main(arguments: list[str] | None = None) -> int:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first")
    parser.add_argument("--only", choices=("throughput", "latency", "restore"))
    parser.add_argument("--side", choices=("penstock", "kafka-streams"))
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=1000, help="records per second of the latency measurement")
    parser.add_argument("--warm-up", type=float, default=30, help="seconds at that rate before the measurement")
    parser.add_argument("--seconds", type=float, default=30, help="measured seconds at that rate")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="bench-first-"))
    try:
        with Broker(heap="1g", settings=BROKER) as broker:
            bench = Bench(broker, directory, options)
            measurements = {"throughput": bench.throughput, "latency": bench.latency, "restore": bench.restore}
            for name, measure in measurements.items():
                if options.only in {None, name}:
                    measure()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.only is None and options.side is None:
        summary = report.summary(bench.figures, vars(options), time.monotonic() - began)
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        print(*report.lines(summary), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
