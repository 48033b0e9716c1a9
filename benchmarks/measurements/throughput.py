"""(A–H, L) Records per second, by what is committed, with the CPU time, the memory and the utilisation of the cores.

A run has three phases: the start, until something is committed; the first half of the records, while processes are cold; and the
second half, which is the steady part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from benchmarks.bench import INVALID, Bench, in_turn
from benchmarks.measurements import sinks
from benchmarks.measurements.samples import Sample, Sampler, rate, spent, utilisation
from benchmarks.report.report import Place
from benchmarks.sides.application import Application
from benchmarks.sides.job import Candidates, Side
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.loading import Loaded
from verification.harness.broker import Broker


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
            last = sampler.reach(loaded.records, settled=True)
            phases = dict(side.epoch_phases(job))
    finally:
        progress.close()
    found = sinks.results(job.bootstrap_servers, job.sink)
    count = loaded.expected.check(found, keeps_late=side.keeps_late)
    return _figures(application, (start, first, half, last), count, phases)


def _figures(application: Application, samples: tuple[Sample, ...], results: int, phases: dict[str, float]) -> Throughput:
    start, first, half, last = samples
    # A side that commits everything at once, as it may a small run, has no steady part: then all of it counts.
    steady = next(sample for sample in (half, first, start) if sample.records < last.records)
    millions = (last.records - steady.records) / 1e6
    cpu = {part: seconds / millions for part, seconds in spent(steady, last).items()}
    return Throughput(
        per_s=rate(steady, last),
        steady_records=last.records - steady.records,
        from_first_commit_per_s=rate(first, last) if first.records < last.records else rate(start, last),
        with_start_per_s=last.records / (last.at_s - application.started_at),
        first_commit_s=first.at_s - application.started_at,
        wall_s=last.at_s - application.started_at,
        results=results,
        cpu_s_per_million=cpu,
        cpu_s_per_million_total=sum(cpu.values()),
        peak_rss_mb=application.tree.peak_rss_bytes / 1e6,
        peak_pss_mb=application.tree.peak_pss_bytes / 1e6,
        utilisation={"start": utilisation(start, first), "cold": utilisation(first, half), "steady": utilisation(half, last)},
        epoch_phases=phases,
    )


def run(bench: Bench, letter: str) -> None:
    """Measure a workload on all sides, in turn. The first round tries all settings of a side, the others use its best."""
    workload, place = WORKLOADS[letter], ("throughput", letter)
    bench.report.begin(place, title=workload.title)
    entrants = bench.entrants(workload.topology, place)
    with bench.broker() as broker:
        shares = {candidates[0].share for candidates in entrants.values()}
        loaded = {share: bench.load(broker, workload, share) for share in sorted(shares)}
        for number in range(bench.options.rounds):
            for name in in_turn(list(entrants), number):
                runs = list(_runs(bench, broker, place, entrants[name], loaded))
                if not runs:
                    continue
                side, best = max(runs, key=lambda one: one[1].per_s)
                entrants[name] = [side]
                bench.report.add((*place, name), asdict(best), settings=side.settings, records=loaded[side.share].records)


def _runs(
    bench: Bench, broker: Broker, place: Place, candidates: Candidates, loaded: Mapping[float, Loaded]
) -> Iterator[tuple[Side, Throughput]]:
    """Each of the settings, once."""
    for side in candidates:
        records = loaded[side.share]
        try:
            with bench.job(broker, side, place[-1], records.workload.topology, records.sources) as job:
                found = measure(Application(side, job), records, broker.pid)
        except INVALID as error:
            bench.report.fail((*place, side.name), error)
            continue
        if len(candidates) > 1:
            bench.report.note((*place, side.name, "tried", side.settings), found.per_s)
        yield side, found
