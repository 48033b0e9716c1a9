"""(M) How the cost of a record grows with cores, partitions, keys, exchanges and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from benchmarks.bench import Bench, in_turn
from benchmarks.measurements import sinks, throughput
from benchmarks.measurements.samples import Sample, Sampler, rate, spent
from benchmarks.report.report import Place
from benchmarks.sides.application import Application
from benchmarks.sides.job import Side
from benchmarks.sides.kafka_streams import with_commits_every
from benchmarks.sides.penstock import Penstock
from benchmarks.workloads import Totals
from benchmarks.workloads.loading import PARTITIONS, Loaded
from verification.harness.broker import Broker

RECORDS, KEYS = 2_000_000, 100_000
PLAIN = Totals(title="", keys=KEYS, records=RECORDS)
LONG = replace(PLAIN, records=12_000_000)
SEGMENTS = 12
"""Of the long run. The first is the start, and does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A point of a line."""

    of: str
    value: int
    workload: Totals = PLAIN
    partitions: int = PARTITIONS
    cores: int | None = None
    """None is all of them."""


def sizes() -> Iterator[Size]:
    """All points, line by line."""
    for cores in (1, 2):
        yield Size(of="cores", value=cores, cores=cores)
    for partitions in (1, 4, 16, 64):
        yield Size(of="partitions", value=partitions, partitions=partitions)
    for keys in (1_000, 10_000, 100_000, 1_000_000, 5_000_000):
        yield Size(of="keys", value=keys, workload=replace(PLAIN, keys=keys, records=max(RECORDS, keys + 1_000_000)))
    for depth in range(1, 7):
        yield Size(of="depth", value=depth, workload=replace(PLAIN, depth=depth))


def run(bench: Bench) -> None:
    """Measure all points, Penstock and Kafka Streams in turn."""
    for size in sizes():
        with bench.tolerance(("growth", size.of, str(size.value))):
            _run_size(bench, size)
    _run_long(bench)


def _run_size(bench: Bench, size: Size) -> None:
    place = ("growth", size.of, str(size.value))
    bench.report.begin(place, title=f"{size.of}: {size.value:,}")
    with bench.broker() as broker:
        loaded = bench.load(broker, size.workload, partitions=size.partitions)
        for number in range(bench.options.rounds):
            for side in _sides(bench, number):
                with bench.tolerance((*place, side.name)):
                    bench.report.add((*place, side.name), _measure(bench, broker, side, size, loaded), settings=side.settings)


def _sides(bench: Bench, number: int) -> list[Side]:
    """Kafka Streams with the settings that were best with (B); commits every second if that was not measured."""
    best = bench.report.get("throughput", "B", "kafka-streams", "settings") or "1000ms-larger"
    interval, _, larger = best.partition("ms")
    sides: dict[str, Side] = {"penstock": Penstock(), "kafka-streams": with_commits_every(int(interval), is_larger=bool(larger))}
    return [sides[name] for name in in_turn([name for name in sides if name in bench.options.sides], number)]


def _measure(bench: Bench, broker: Broker, side: Side, size: Size, loaded: Loaded) -> dict[str, Any]:
    cores = 2 if size.cores is None else size.cores
    with bench.job(broker, side, size.of, size.workload.topology, loaded.sources, partitions=size.partitions, cores=cores) as job:
        found = throughput.measure(Application(side, job, pinned_to=size.cores), loaded, broker.pid)
    own = sum(seconds for part, seconds in found.cpu_s_per_million.items() if part != "broker")
    return {
        "per_s": found.per_s,
        "cpu_us_per_record": own,
        "broker_cpu_us_per_record": found.cpu_s_per_million["broker"],
        "peak_pss_mb": found.peak_pss_mb,
    }


def _run_long(bench: Bench) -> None:
    """A long run, in segments: does a record cost more as time goes by?"""
    place = ("growth", "time")
    bench.report.begin(place, title=f"{LONG.records:,} records")
    with bench.broker() as broker:
        loaded = bench.load(broker, LONG)
        for side in _sides(bench, 0):
            with bench.tolerance((*place, "1", side.name)):
                _note_segments(bench, place, side, _long_samples(bench, broker, side, loaded))


def _long_samples(bench: Bench, broker: Broker, side: Side, loaded: Loaded) -> list[Sample]:
    with bench.job(broker, side, "time", LONG.topology, loaded.sources) as job:
        progress = side.progress(job)
        try:
            with Application(side, job) as application:
                sampler = Sampler(application, progress, broker.pid)
                samples = [sampler.reach(loaded.records * number // SEGMENTS) for number in range(1, SEGMENTS + 1)]
        finally:
            progress.close()
        loaded.expected.check(sinks.results(job.bootstrap_servers, job.sink), keeps_late=side.keeps_late)
    return samples


def _note_segments(bench: Bench, place: Place, side: Side, samples: list[Sample]) -> None:
    """The cost of a record in each quarter after the first segment: one segment may be a single epoch more or less."""
    quarters = [samples[0], *samples[2::3]]
    for number, (start, end) in enumerate(pairwise(quarters), start=1):
        records = end.records - start.records
        if records <= 0:
            continue
        own_s = sum(seconds for part, seconds in spent(start, end).items() if part != "broker")
        figures = {"per_s": rate(start, end), "cpu_us_per_record": own_s * 1e6 / records, "records": records}
        bench.report.add((*place, str(number), side.name), figures)
