"""What has no rival: timers of a lane, calls to a service, and queries under load. The same figures as of the other doors."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.bench import Bench
from benchmarks.time import enrichment
from benchmarks.time import timers as lane_timers
from verification.operations import questions

TIMERS = 1_000_000
CALLS, CONCURRENCY, EPOCH_RECORDS = 100_000, 200, 10_000
QUERIED_RECORDS = 12_000_000


def timers(bench: Bench) -> None:
    """Timers registered and fired per second of a core, as `make bench-time` measures them."""
    bench.report.begin(("timers",), title="timers of a lane")
    found = asdict(lane_timers.measure(bench.options.scaled(TIMERS)))
    bench.report.note(("timers",), {**found, "ran_on": {"engine": "none, a lane by itself", "slots": 0, "spark_tasks": 0}})


def calls(bench: Bench) -> None:
    """Records per second with a call to a service for each, as `make bench-time` measures them."""
    bench.report.begin(("calls",), title="calls to a service")
    with bench.broker() as broker:
        found = enrichment.measure(broker, bench.directory, bench.options.scaled(CALLS), CONCURRENCY, EPOCH_RECORDS)
    bench.report.note(("calls",), asdict(found))


def queries(bench: Bench) -> None:
    """The loss of throughput by 1,000 queries a second, as `make operations` measures it."""
    bench.report.begin(("queries",), title="1,000 queries a second under load")
    with bench.broker() as broker:
        found = questions.run(broker, bench.directory, records=bench.options.scaled(QUERIED_RECORDS))
    bench.report.note(("queries",), found)
