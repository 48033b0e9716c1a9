"""(I) End-to-end latency at a steady rate: from when a record was due until a consumer has its committed result.

Measured for half a minute, beginning one minute after the application was ready, and in the last round once more after five.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.bench import Bench, in_turn
from benchmarks.measurements.prober import Prober
from benchmarks.measurements.samples import Sampler, spent
from benchmarks.report.statistics import percentile
from benchmarks.sides.application import Application
from benchmarks.sides.job import Candidates, Side
from benchmarks.sides.kafka_streams import with_commits_every
from benchmarks.workloads.loading import create
from verification.harness.broker import Broker
from verification.harness.processes import HarnessError

STATELESS = "stateless"
EXCHANGES = {STATELESS: "passed-on", "no exchange": "totals", "two exchanges": "rekeyed"}
"""Records that are only passed on, counted and summed by key, and that twice. Spark's Real-Time Mode takes part in the first."""
RATES = ("1000", "10000", "half")
"""`half` is half of the side's own maximum, as measured with (B); it only makes sense without an exchange, as (B) has none."""
RATES_OF = {STATELESS: ("1000",), "no exchange": RATES, "two exchanges": ("1000", "10000")}
AFTER_S = (60, 300)
MEASURED_S = 30
LAST_RESULTS_S = 30
SUSTAINED = 0.8
"""A side is not sent more than this share of its maximum: it would only fall behind."""


def run(bench: Bench, rate: str) -> None:
    """Measure each side at a rate, without state, without and with two exchanges."""
    for exchanges, topology in EXCHANGES.items():
        if rate in RATES_OF[exchanges]:
            with bench.tolerance(("latency", exchanges, rate)):
                _run_at(bench, exchanges, topology, rate)


def _run_at(bench: Bench, exchanges: str, topology: str, rate: str) -> None:
    place = ("latency", exchanges, rate)
    bench.report.begin(place, title=f"{exchanges}, {rate} records/s")
    entrants = bench.entrants(topology, place, [name for name in bench.options.sides if name != "penstock-columns"])
    rates = {name: per_s for name in entrants if (per_s := _rate(bench, place, name, rate))}
    with bench.broker() as broker:
        for number in range(bench.options.rounds):
            after_s = AFTER_S if number == bench.options.rounds - 1 else AFTER_S[:1]
            for name in in_turn(list(rates), number):
                side = _side(bench, name, entrants)
                with bench.tolerance((*place, name)):
                    found = measure(bench, broker, side, topology, rates[name], after_s)
                    bench.report.add((*place, name), found, settings=side.settings, rate=rates[name])


def _rate(bench: Bench, place: tuple[str, ...], name: str, rate: str) -> int | None:
    """Records per second for a side; None if it cannot be measured at this rate."""
    maximum = bench.report.get("throughput", "B", name, "median", "per_s")
    if rate == "half":
        if maximum is None:
            bench.report.leave_out((*place, name), "its maximum was not measured: run B first, or with --resume")
            return None
        return int(maximum / 2)
    if maximum is not None and int(rate) > SUSTAINED * maximum:
        bench.report.leave_out((*place, name), f"its maximum is {maximum:,.0f} records/s")
        return None
    return int(rate)


def _side(bench: Bench, name: str, entrants: Mapping[str, Candidates]) -> Side:
    """Kafka Streams with commits every 100 ms; others with the settings that were best for throughput, or their first."""
    if name == "kafka-streams":
        return with_commits_every(100)
    best = bench.report.get("throughput", "B", name, "settings")
    return next((side for side in entrants[name] if side.settings == best), entrants[name][0])


def measure(bench: Bench, broker: Broker, side: Side, topology: str, rate: int, after_s: tuple[int, ...]) -> dict[str, Any]:
    """Latency, CPU time and memory of a side at a steady rate, from these times on."""
    source = bench.fresh("latency-in")
    create(broker.bootstrap_servers, source)
    with bench.job(broker, side, "latency", topology, (source,)) as job:
        progress = side.progress(job)
        try:
            with Application(side, job) as application, Prober(job) as prober:
                sampler = Sampler(application, progress, broker.pid)
                prober.wait_until_ready(application)
                found: dict[str, Any] = {}
                spans: dict[str, range] = {}
                sent_s = 0.0
                for after in after_s:
                    scaled_s = bench.options.scaled(after)
                    prober.send(rate, scaled_s - sent_s)
                    before = sampler.now(0)
                    spans[f"after_{after}_s"] = prober.send(rate, bench.options.scaled(MEASURED_S))
                    cpu_s = spent(before, later := sampler.now(0))
                    own_s = sum(seconds for part, seconds in cpu_s.items() if part != "broker")
                    found[f"after_{after}_s"] = {"cpu_percent": 100 * own_s / (later.at_s - before.at_s)}
                    sent_s = scaled_s + bench.options.scaled(MEASURED_S)
                application.check()
                prober.wait_for_all(LAST_RESULTS_S)
        finally:
            progress.close()
    for name, numbers in spans.items():
        found[name] |= summary(prober.latencies_ms(numbers))
    return {**found, "peak_pss_mb": application.tree.peak_pss_bytes / 1e6, "peak_rss_mb": application.tree.peak_rss_bytes / 1e6}


def summary(latencies_ms: list[float]) -> dict[str, float]:
    """Percentiles of ordered latencies."""
    if not latencies_ms:
        raise HarnessError("no probe was sent in the measured time")
    return {
        **{f"p{percent}": percentile(latencies_ms, percent) for percent in (50, 95, 99)},
        "max": latencies_ms[-1],
        "probes": len(latencies_ms),
    }
