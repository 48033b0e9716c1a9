"""There and back: a request with 250 records to a slot in a Spark task, and to one in a forked process, in random order.

In a process of its own, because the JVM of a context that has stopped lives as long as the process that started it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import ClassVar

import pyarrow as pa

from benchmarks.applications.penstock_app import topology
from benchmarks.bench import Bench
from benchmarks.engine.group import Figures, Group, Round, Row, in_tasks
from penstock.engines.forked.slots import ForkedSlots
from penstock.engines.port import Batches
from penstock.engines.slots import Slots
from penstock.epochs.program import Program
from penstock.handlers import ErrorHandlers
from penstock.spark.context import Spark
from penstock.spark.slots import SparkSlots
from penstock.state import EngineKind
from penstock.topology.plan import plan

RECORDS, VALUE_BYTES, TRIPS, WARM_TRIPS = 250, 100, 300, 500
LANES = 2
SPARK, LOCAL = "Spark slot, ms", "forked worker, ms"


@dataclass(frozen=True)
class Echo:
    """A request that is answered with its own batches."""

    reads_topics: ClassVar[bool] = False

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Return them."""
        return iter(batches)


def measure(bench: Bench) -> Iterator[Round]:
    """All rounds, with the same slots."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        yield from process.submit(_measured, bench.directory, bench.options.rounds).result()


def rows(medians: Figures) -> Iterable[Row]:
    """The ratio."""
    name = f"round trip of {RECORDS} records, Spark slot / forked worker"
    yield Row(name, medians[SPARK] / medians[LOCAL], 1.2, (SPARK, LOCAL))


def _measured(directory: Path, rounds: int) -> list[Round]:
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
    with closing(Spark("round-trips", LANES, {})) as spark:
        in_spark = SparkSlots(program, _nothing, spark)
        slots: dict[str, Slots] = {SPARK: in_spark, LOCAL: ForkedSlots(program, _nothing, LANES, lambda line: None)}
        for each in slots.values():
            each.start()
        _trips(slots, WARM_TRIPS, Random(0))
        found = [_trips(slots, TRIPS, Random(number + 1)) for number in range(rounds)]
        count = sum(in_spark.hosts.values())
        ran_on = in_tasks({"engine": "spark", "slots": count, "spark_tasks": count, "hosts": len(in_spark.hosts)})
        for each in slots.values():
            each.close()
    return [Round(figures, ran_on) for figures in found]


def _trips(slots: dict[str, Slots], count: int, chance: Random) -> dict[str, float]:
    """The median milliseconds of so many trips with each kind of slot; noise hits both alike."""
    batch = pa.record_batch({"value": [b"x" * VALUE_BYTES] * RECORDS})
    found: dict[str, list[float]] = {name: [] for name in slots}
    for _ in range(count):
        for name in chance.sample(list(slots), len(slots)):
            slot = slots[name].slot(0)
            began = time.perf_counter()
            slot.ask(Echo(), [batch])
            found[name].append(1_000 * (time.perf_counter() - began))
    return {name: statistics.median(each) for name, each in found.items()}


def _nothing() -> None:
    """Prepare nothing."""


GROUP = Group("round-trips", 1, measure, rows)
