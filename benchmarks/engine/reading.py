"""One large epoch: read by one consumer in the driver, which hands records and rows to slots; or by slots, which exchange rows.

(B) in columns, where a lane takes little longer than reading, and re-keyed records with functions, where it takes several times
that. Each in a process of its own, as round trips are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.applications import columns_app
from benchmarks.applications.penstock_app import TOPOLOGIES, Topologies, topology
from benchmarks.bench import Bench
from benchmarks.engine.group import Figures, Group, Round, Row, in_tasks
from benchmarks.workloads import Totals
from penstock.config import Config
from penstock.engines.one_host import OneHost
from penstock.engines.reading import Reading, coded
from penstock.epochs.program import Epoch, Program
from penstock.epochs.state_directory import StateDirectory
from penstock.epochs.wire import Kind
from penstock.handlers import ErrorHandlers
from penstock.kafka.clients import input_settings
from penstock.kafka.input_reader import InputReader
from penstock.kafka.range_reader import RangeReader
from penstock.records import Ranges
from penstock.spark.context import Spark
from penstock.spark.slots import SparkSlots
from penstock.state import EngineKind
from penstock.topology.plan import plan
from verification.harness import topics
from verification.harness.processes import HarnessError

WORKLOAD = Totals(title="one large epoch", keys=100_000, records=4_000_000)
"""With the default scale, two million records."""
PARTITIONS, LANES = 16, 2
PATIENCE_S = 600.0
MOST_BYTES = 256 << 20
PLENTY = 1 << 40
SLOTS, DRIVER = "slots that read, s", "one reader in the driver, s"
KINDS: dict[str, tuple[str, Topologies]] = {
    "(B) in columns": ("totals", columns_app.TOPOLOGIES),
    "re-keyed, with functions": ("depth-1", TOPOLOGIES),
}


def measure(bench: Bench) -> Iterator[Round]:
    """All rounds, with the same slots and the same topic."""
    with bench.broker() as broker:
        loaded = bench.load(broker, WORKLOAD, partitions=PARTITIONS)
        found: list[list[Round]] = []
        for number, kind in enumerate(KINDS):
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                arguments = kind, broker.bootstrap_servers, loaded.sources[0], bench.directory / str(number)
                found.append(process.submit(_measured, *arguments, bench.options.rounds).result())
        for rounds in zip(*found, strict=True):
            yield Round({name: figure for each in rounds for name, figure in each.figures.items()}, rounds[0].ran_on)


def rows(medians: Figures) -> Iterable[Row]:
    """The ratios of their throughputs."""
    for kind in KINDS:
        name = f"one large epoch, {PARTITIONS} partitions, {kind}: slots that read / one reader in the driver"
        slots, driver = f"{kind}: {SLOTS}", f"{kind}: {DRIVER}"
        yield Row(name, medians[driver] / medians[slots], 1.5, (slots, driver), is_most=False)


def _measured(kind: str, servers: str, topic: str, directory: Path, rounds: int) -> list[Round]:
    name, topologies = KINDS[kind]
    built = topology(name, [topic], "out", topologies)
    program = Program.of(
        "reading",
        built,
        plan(built),
        lanes=LANES,
        shards=8,
        directory=str(directory),
        engine=EngineKind.LMDB,
        incarnation="bench",
        handlers=ErrorHandlers(),
        columns=True,
    )
    StateDirectory(program.directory, program.application_id).take_over(program.incarnation)
    settings = input_settings(Config.load(environment={}, bootstrap_servers=servers), program.application_id)
    ranges = {(topic, number): (0, end) for number, end in topics.end_offsets(servers, topic).items()}
    with closing(Spark("reading", LANES, {})) as spark:
        engine = OneHost(program, SparkSlots(program, _nothing, spark), PATIENCE_S, "spark", "Spark tasks")
        engine.start()
        engine.warm()
        reading = Reading(ranges, {topic: 0}, lambda: RangeReader(settings, PATIENCE_S, MOST_BYTES))
        ways: dict[str, Callable[[Epoch], pa.Table]] = {
            SLOTS: lambda epoch: engine.read(epoch, reading),
            DRIVER: lambda epoch: engine.run(epoch, _read_by_driver(epoch, settings, ranges), is_small=False),
        }
        found: list[dict[str, float]] = []
        last = -1
        for number in range(rounds):
            figures: dict[str, float] = {}
            for way in sorted(ways, reverse=number % 2 == 1):
                last += 1
                epoch = Epoch(last, last - 1, 0, tuple(ranges), (-1,) * len(ranges), {topic: PARTITIONS})
                began = time.monotonic()
                table = ways[way](epoch)
                figures[f"{kind}: {way}"] = time.monotonic() - began
                _check(table)
            found.append(figures)
        where = engine.whereabouts
        ran_on = in_tasks({"engine": "spark", "slots": where.count, "spark_tasks": where.count, "hosts": len(where.slots)})
        engine.close()
    return [Round(figures, ran_on) for figures in found]


def _read_by_driver(epoch: Epoch, settings: Any, ranges: Ranges) -> list[pa.RecordBatch]:
    codes = {origin: code for code, origin in enumerate(epoch.origins)}
    with closing(InputReader(settings, {place: begin for place, (begin, _) in ranges.items()}, PLENTY, PLENTY)) as reader:
        while any(reader.read_to[place] < end for place, (_, end) in ranges.items()):
            reader.wait(reader.read_to, 1.0)
        return [coded(batch, 0, codes[place]) for place, batch in reader.between(ranges)]


def _check(table: pa.Table) -> None:
    """Raise unless each key has one result: caches emit once in an epoch."""
    found = table.column("kind").to_pylist().count(int(Kind.SINK))
    if found != WORKLOAD.keys:
        raise HarnessError(f"the epoch has {found} results, not {WORKLOAD.keys}")


def _nothing() -> None:
    """Prepare nothing."""


GROUP = Group("reading", 8, measure, rows)
