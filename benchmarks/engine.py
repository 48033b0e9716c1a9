"""`python -m benchmarks.engine`: lanes in Spark's tasks beside lanes in forked processes (`engine = local`), in one run.

Round trips of a request, throughput of (B), (C) and (D), latency and CPU time at a steady rate, the start, memory, and how long
it takes until the next commit when a slot is killed. Both sides in turn, and medians of all rounds. Writes reports/engine.json:
each figure with its goal.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar

import psutil
import pyarrow as pa

from benchmarks.applications.penstock_app import topology
from benchmarks.bench import Bench, Options, in_turn
from benchmarks.measurements import latency, start, throughput
from benchmarks.measurements.prober import Prober
from benchmarks.report.report import Report
from benchmarks.sides.application import Application
from benchmarks.sides.penstock import Penstock, PenstockLocal
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.loading import create
from penstock.engines.forked.slots import ForkedSlots
from penstock.engines.port import Batches
from penstock.engines.slots import Slots
from penstock.epochs.program import Program
from penstock.handlers import ErrorHandlers
from penstock.plan import plan
from penstock.spark.context import Spark
from penstock.spark.slots import SparkSlots
from penstock.state import EngineKind
from verification.harness.broker import Broker
from verification.on_spark.processes import is_task

REPORT = Path("reports/engine.json")
SIDES = {"spark": Penstock(), "local": PenstockLocal()}
LETTERS = ("B", "C", "D")
RATE, AFTER_S, IDLE_S = 1_000, 30, 20
RECORDS, VALUE_BYTES, TRIPS, WARM_TRIPS = 250, 100, 300, 50
KILLS = 3
LANES = 2
NEXT_S = 60


@dataclass(frozen=True)
class Echo:
    """A request that is answered with its own batches."""

    reads_topics: ClassVar[bool] = False

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Return them."""
        return iter(batches)


@dataclass(frozen=True)
class Goal:
    """A figure, and the most or the least that it should be."""

    name: str
    measured: float
    goal: float
    is_most: bool = True

    @property
    def reached(self) -> bool:
        """Whether it is reached."""
        return self.measured <= self.goal if self.is_most else self.measured >= self.goal

    def __str__(self) -> str:
        sign = "at most" if self.is_most else "at least"
        return f"{'reached' if self.reached else 'MISSED '} {self.name}: {self.measured:.3g} ({sign} {self.goal:g})"


def main(arguments: list[str] | None = None) -> int:
    """Measure everything; return 0 even if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=0.25, help="the share of all records and seconds")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="bench-engine-"))
    about = Report(options.report, {"rounds": options.rounds, "scale": options.scale})
    bench = Bench(directory, Options(rounds=options.rounds, scale=options.scale), about)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in SIDES}
    try:
        for name, taken in _round_trips(directory).items():
            found[name]["round_trip_ms"] = taken
        with bench.broker() as broker:
            for number in range(options.rounds):
                for name in in_turn(list(SIDES), number):
                    for figure, value in _round(bench, broker, name).items():
                        found[name].setdefault(figure, []).append(value)
                    print(name, {figure: round(values[-1], 3) for figure, values in found[name].items()}, flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    medians = {name: {figure: statistics.median(values) for figure, values in own.items()} for name, own in found.items()}
    goals = _goals(medians)
    report = {
        **about.content,
        "slots": LANES,
        "goals": {goal.name: {"goal": goal.goal, "measured": goal.measured, "reached": goal.reached} for goal in goals},
        "medians": medians,
        "rounds_of": found,
    }
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for goal in goals:
        print(goal)
    return 0


def _goals(medians: Mapping[str, Mapping[str, float]]) -> list[Goal]:
    spark, local = medians["spark"], medians["local"]
    found = [Goal("round trip of 250 records, Spark slot / forked process", spark["round_trip_ms"] / local["round_trip_ms"], 1.2)]
    for letter in LETTERS:
        figure = f"{letter}_per_s"
        found.append(Goal(f"throughput of {letter}, spark / local", spark[figure] / local[figure], 0.95, is_most=False))
    return [
        *found,
        Goal("p95 at 1,000 records/s, spark / local", spark["p95_ms"] / local["p95_ms"], 1.1),
        Goal("CPU of the JVM while idle, % of a core", spark["idle_jvm_percent"], 1.0),
        Goal("CPU of the JVM at 1,000 records/s, % of a core", spark["jvm_percent"], 5.0),
        Goal("a killed Python process: seconds to the next commit", spark["killed_s"], 3.0),
        Goal("memory beside local, GB", (spark["pss_mb"] - local["pss_mb"]) / 1_000, 0.5),
        Goal("start to the first commit, s (3 times Kafka Streams': see bench part J)", spark["first_commit_s"], 3 * 3.0),
    ]


def _round(bench: Bench, broker: Broker, name: str) -> dict[str, float]:
    """The figures of a side in one round."""
    side = SIDES[name]
    found: dict[str, float] = {}
    loaded = bench.load(broker, start.WORKLOAD)
    with bench.job(broker, side, "start", start.WORKLOAD.topology, loaded.sources) as job:
        found["first_commit_s"] = start.first_commit_s(broker, Application(side, job), 1)
    for letter in LETTERS:
        workload = WORKLOADS[letter]
        of_letter = None if workload.needs_tables_first else bench.load(broker, workload)
        found[f"{letter}_per_s"] = throughput.run_once(bench, broker, letter, side, of_letter).per_s
    return {**found, **_steady(bench, broker, name)}


def _steady(bench: Bench, broker: Broker, name: str) -> dict[str, float]:
    """At a steady rate: latency, CPU time of the JVM, memory, then kills; and CPU time while idle."""
    side, source = SIDES[name], bench.fresh("steady-in")
    create(broker.bootstrap_servers, source)
    with (
        bench.job(broker, side, "steady", "totals", (source,)) as job,
        Application(side, job) as application,
        Prober(job) as prober,
    ):
        prober.wait_until_ready(application)
        prober.send(RATE, AFTER_S)
        with _jvm_percent(application) as at_rate:
            span = prober.send(RATE, AFTER_S)
        prober.wait_for_all(latency.LAST_RESULTS_S)
        pss_mb = application.tree.peak_pss_bytes / 1e6
        with _jvm_percent(application) as idle:
            time.sleep(IDLE_S)
        killed = [_until_next_result(application, prober) for _ in range(KILLS)]
        application.check()
    summary = latency.summary(prober.latencies_ms(span))
    return {
        "p50_ms": summary["p50"],
        "p95_ms": summary["p95"],
        "jvm_percent": at_rate[0],
        "idle_jvm_percent": idle[0],
        "pss_mb": pss_mb,
        "killed_s": statistics.median(killed),
    }


@contextmanager
def _jvm_percent(application: Application) -> Iterator[list[float]]:
    """CPU time of the JVM with its compiler while the block runs, in percent of a core: the only item of the list afterwards."""
    found: list[float] = []

    def spent() -> float:
        seconds = application.cpu_seconds()
        return seconds.get("jvm", 0.0) + seconds.get("compiler", 0.0)

    before, began = spent(), time.monotonic()
    yield found
    found.append(100 * (spent() - before) / (time.monotonic() - began))


def _until_next_result(application: Application, prober: Prober) -> float:
    """Kill a slot, and return the seconds until a record that is sent then has its result."""
    slots = [each for each in application.tree.descendants() if is_task(each.pid) or _is_forked(each)]
    slots[-1].kill()
    began = time.monotonic()
    span = prober.send(RATE, 1)
    prober.wait_for_all(NEXT_S)
    return min(prober.arrived_at[number] for number in span if number in prober.arrived_at) - began


def _is_forked(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        module = "penstock.engines.forked.process"
        return parent is not None and all(module in " ".join(each.cmdline()) for each in (process, parent))
    except psutil.Error:
        return False


def _round_trips(directory: Path) -> dict[str, list[float]]:
    """Milliseconds there and back of a request with 250 records, by side; in random order, so that noise hits both alike."""
    built = topology("totals", ["in"], "out")
    program = Program.of(
        "round-trips",
        built,
        plan(built),
        lanes=LANES,
        shards=8,
        directory=str(directory),
        engine=EngineKind.LMDB,
        incarnation="bench",
        handlers=ErrorHandlers(),
    )
    spark = Spark("round-trips", LANES, {})
    with closing(spark):
        slots: dict[str, Slots] = {
            "spark": SparkSlots(program, _nothing, spark),
            "local": ForkedSlots(program, _nothing, LANES, lambda line: None),
        }
        batch = pa.record_batch({"value": [b"x" * VALUE_BYTES] * RECORDS})
        for each in slots.values():
            each.start()
        found: dict[str, list[float]] = {name: [] for name in slots}
        random = Random(1)
        for number in range(-WARM_TRIPS, TRIPS):
            for name in random.sample(list(slots), len(slots)):
                slot = slots[name].slot(0)
                began = time.perf_counter()
                slot.ask(Echo(), [batch])
                if number >= 0:
                    found[name].append(1_000 * (time.perf_counter() - began))
        for each in slots.values():
            each.close()
    return found


def _nothing() -> None:
    """Prepare nothing."""


if __name__ == "__main__":
    sys.exit(main())
