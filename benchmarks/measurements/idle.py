"""(M) CPU time of an application that has nothing to do."""

from __future__ import annotations

import time

from benchmarks.bench import Bench, in_turn
from benchmarks.measurements import sinks
from benchmarks.measurements.samples import Sampler, spent
from benchmarks.sides.application import Application
from benchmarks.sides.job import Job, Side
from benchmarks.sides.kafka_streams import with_commits_every
from benchmarks.workloads import Totals
from benchmarks.workloads.loading import Loaded
from verification.harness.broker import Broker

WORKLOAD = Totals(title="CPU without records", keys=10_000, records=100_000)
SIDES = ("penstock", "kafka-streams", "spark", "quix")
SETTLE_S, MEASURED_S = 20, 60


def run(bench: Bench) -> None:
    """Measure each side after it has processed its records."""
    place = ("idle",)
    bench.report.begin(place, title=WORKLOAD.title)
    entrants = bench.entrants(WORKLOAD.topology, place, SIDES)
    with bench.broker() as broker:
        loaded = bench.load(broker, WORKLOAD)
        for number in range(bench.options.rounds):
            for name in in_turn(list(entrants), number):
                side = with_commits_every(100) if name == "kafka-streams" else entrants[name][0]
                with (
                    bench.tolerance((*place, name)),
                    bench.job(broker, side, "idle", WORKLOAD.topology, loaded.sources) as job,
                ):
                    bench.report.add((*place, name), _measure(bench, broker, side, job, loaded))


def _measure(bench: Bench, broker: Broker, side: Side, job: Job, loaded: Loaded) -> dict[str, float]:
    progress = side.progress(job)
    try:
        with Application(side, job) as application:
            sampler = Sampler(application, progress, broker.pid)
            sampler.reach(loaded.records, settled=True)
            time.sleep(bench.options.scaled(SETTLE_S))
            before = sampler.now(0)
            time.sleep(bench.options.scaled(MEASURED_S))
            after = sampler.now(0)
    finally:
        progress.close()
    loaded.expected.check(sinks.results(job.bootstrap_servers, job.sink), keeps_late=side.keeps_late)
    percent = {part: 100 * seconds / (after.at_s - before.at_s) for part, seconds in spent(before, after).items()}
    broker_percent = percent.pop("broker")
    return {"cpu_percent": sum(percent.values()), "broker_cpu_percent": broker_percent, **percent}
