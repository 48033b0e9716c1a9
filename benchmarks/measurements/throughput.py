"""(A–H, L) Records per second, by what is committed, with the CPU time, the memory and the utilisation of the cores.

A run has three phases: the start, until something is committed; the first half of the records, while processes are cold; and
the steady part, which ends with the commit of nearly all records: the last one may have to wait for its interval. But where
records pass an exchange, only the end shows that all of them are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from benchmarks.bench import Bench, in_turn
from benchmarks.measurements import sinks
from benchmarks.measurements.samples import Sample, Sampler, rate, spent, utilisation
from benchmarks.sides.application import Application
from benchmarks.sides.job import Candidates, Side
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.loading import Loaded, create_sources, write
from verification.harness import topics
from verification.harness.broker import Broker

SIDES = ("penstock", "penstock-columns", "kafka-streams", "spark", "quix")
NEARLY = 0.95


class Samples(NamedTuple):
    """Those of a run; `end` is that of the steady part."""

    start: Sample
    first: Sample
    half: Sample
    end: Sample
    last: Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One run. CPU time is that of the steady part, in seconds per million records, and memory that of the application."""

    per_s: float
    steady_records: int
    from_first_commit_per_s: float
    with_start_per_s: float
    first_commit_s: float
    wall_s: float
    results: int
    cpu_s_per_million: dict[str, float]
    cpu_s_per_million_total: float
    peak_rss_mb: float
    peak_pss_mb: float
    utilisation: dict[str, dict[str, float]]
    epoch_phases: dict[str, float]


def measure(application: Application, loaded: Loaded, broker_pid: int) -> Throughput:
    """Process all records once, and check the results."""
    side, job = application.side, application.job
    progress = side.progress(job)
    try:
        with application:
            sampler = Sampler(application, progress, broker_pid)
            start = sampler.now(0)
            first, half = sampler.reach(1), sampler.reach(loaded.records // 2)
            nearly = sampler.reach(int(NEARLY * loaded.records))
            last = sampler.reach(loaded.records, settled=True)
            phases = dict(side.epoch_phases(job))
    finally:
        progress.close()
    found = sinks.results(job.bootstrap_servers, job.sink)
    count = loaded.expected.check(found, keeps_late=side.keeps_late)
    end = last if loaded.workload.is_exchanged else nearly
    return _figures(application, Samples(start, first, half, end, last), count, phases)


def _figures(application: Application, samples: Samples, results: int, phases: dict[str, float]) -> Throughput:
    start, first, half, end, last = samples
    # A side that commits everything at once, as it may a small run, has no steady part: then all of it counts.
    steady = next(sample for sample in (half, first, start) if sample.records < end.records)
    millions = (end.records - steady.records) / 1e6
    cpu = {part: seconds / millions for part, seconds in spent(steady, end).items()}
    return Throughput(
        per_s=rate(steady, end),
        steady_records=end.records - steady.records,
        from_first_commit_per_s=rate(first, last) if first.records < last.records else rate(start, last),
        with_start_per_s=last.records / (last.at_s - application.started_at),
        first_commit_s=first.at_s - application.started_at,
        wall_s=last.at_s - application.started_at,
        results=results,
        cpu_s_per_million=cpu,
        cpu_s_per_million_total=sum(cpu.values()),
        peak_rss_mb=application.tree.peak_rss_bytes / 1e6,
        peak_pss_mb=application.tree.peak_pss_bytes / 1e6,
        utilisation={"start": utilisation(start, first), "cold": utilisation(first, half), "steady": utilisation(steady, end)},
        epoch_phases=phases,
    )


def run(bench: Bench, letter: str) -> None:
    """Measure a workload on all sides, in turn. The first round tries all settings of a side, the others use its best."""
    workload, place = WORKLOADS[letter], ("throughput", letter)
    bench.report.begin(place, title=workload.title)
    entrants = bench.entrants(workload.topology, place, SIDES)
    with bench.broker() as broker:
        shares = set() if workload.needs_tables_first else {candidates[0].share for candidates in entrants.values()}
        loaded = {share: bench.load(broker, workload, share) for share in sorted(shares)}
        for number in range(bench.options.rounds):
            for name in in_turn(list(entrants), number):
                runs = list(_runs(bench, broker, letter, entrants[name], loaded))
                if not runs:
                    continue
                side, best = max(runs, key=lambda one: one[1].per_s)
                entrants[name] = [side]
                records = bench.records(workload, side.share)
                bench.report.add((*place, name), asdict(best), settings=side.settings, records=records)


def _runs(
    bench: Bench, broker: Broker, letter: str, candidates: Candidates, loaded: Mapping[float, Loaded]
) -> Iterator[tuple[Side, Throughput]]:
    """Each of the settings, once."""
    for side in candidates:
        place = ("throughput", letter, side.name)
        with bench.tolerance(place):
            found = run_once(bench, broker, letter, side, loaded.get(side.share))
            if len(candidates) > 1:
                bench.report.note((*place, "tried", side.settings), found.per_s)
            yield side, found


def run_once(bench: Bench, broker: Broker, letter: str, side: Side, loaded: Loaded | None) -> Throughput:
    """One run, of what is loaded; without it, of records that are written once the tables are processed."""
    workload = WORKLOADS[letter]
    if loaded is not None:
        with bench.job(broker, side, letter, workload.topology, loaded.sources) as job:
            return measure(Application(side, job), loaded, broker.pid)
    sources = create_sources(broker.bootstrap_servers, workload, bench.fresh("in"))
    records, measured = bench.records(workload, side.share), workload.sources[0]
    write(broker.bootstrap_servers, workload, records, sources, only=workload.sources[1:])
    with bench.job(broker, side, letter, workload.topology, tuple(sources.values())) as job:
        if side.follows_tables:
            _process_tables(Application(side, job), broker.pid)
        loaded = write(broker.bootstrap_servers, workload, records, sources, only=(measured,))
        try:
            return measure(Application(side, job), loaded, broker.pid)
        finally:
            topics.delete(broker.bootstrap_servers, sources[measured])


def _process_tables(application: Application, broker_pid: int) -> None:
    """Run the application until it has processed what there is, and stop it."""
    progress = application.side.progress(application.job)
    try:
        with application:
            Sampler(application, progress, broker_pid).reach(0, settled=True)
    finally:
        progress.close()
