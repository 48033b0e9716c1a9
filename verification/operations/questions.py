"""Point reads over HTTP while an application processes its input at full speed: their latency and their cost.

One run of one process: it is left alone for some seconds, queried for as many, and so on. Throughput is that of whole epochs
within each of these spans, as the application reports them. A span with queries is compared with the two around it, so that
neither a warm-up nor a neighbour on the machine that comes and goes counts as a loss.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.sides.application import Application
from benchmarks.workloads import Totals
from benchmarks.workloads.loading import load
from verification.harness.broker import Broker
from verification.harness.processes import HarnessError
from verification.operations.served_application import Admin, job_of, serving

RATE = 1000
WARM_UP_S = 10
SPAN_S = 6
KEYS = 100_000
EPOCH_RECORDS = "60000"
"""Smaller than the default, with which one epoch would take all input: several must fit into a span."""


class Span(NamedTuple):
    """Some seconds of the run."""

    is_asked: bool
    records_per_s: float
    milliseconds: list[float]
    failures: int
    driver_cpu_s: float
    client_cpu_s: float


def run(broker: Broker, directory: Path, spans: int = 4, records: int = 12_000_000) -> dict[str, Any]:
    """The 95th percentile in milliseconds, and the loss of throughput as a fraction, in this many spans with queries."""
    loaded = load(broker.bootstrap_servers, Totals(title="", keys=KEYS, records=records), name="asked")
    job = job_of(broker, directory, "asked", loaded)
    with serving(job, {"PENSTOCK_MAX_EPOCH_RECORDS": EPOCH_RECORDS}) as (application, admin, _):
        admin.wait_until_ready()
        time.sleep(WARM_UP_S)
        found = []
        for number in range(2 * spans + 1):
            application.check()
            found.append(_span(application, admin, is_asked=number % 2 == 1))
            print(_line(found[-1]), flush=True)
        lag = sum(place["lag"] for place in admin.get("/watermarks").json()["partitions"])
    if not lag:
        raise HarnessError("the application ran out of input, so nothing was measured under load")
    asked, alone = ([span for span in found if span.is_asked is wanted] for wanted in (True, False))
    answers = sorted(milliseconds for span in asked for milliseconds in span.milliseconds)
    return {
        "ran_on": job.ran_on,
        "reads_per_s": RATE,
        "answers": len(answers),
        "failures": sum(span.failures for span in asked),
        "p50_ms": round(_percentile(answers, 0.5), 2),
        "p95_ms": round(_percentile(answers, 0.95), 2),
        "p99_ms": round(_percentile(answers, 0.99), 2),
        "loss": round(loss([span.records_per_s for span in found]), 4),
        "cpu_us_per_read": {
            "driver": round(1e6 * (_driver_cpu(asked) - _driver_cpu(alone)) / RATE),
            "client": round(1e6 * median(span.client_cpu_s for span in asked) / SPAN_S / RATE),
        },
        "records_per_s": {
            "asked": [round(span.records_per_s) for span in asked],
            "alone": [round(span.records_per_s) for span in alone],
        },
    }


def loss(rates: Sequence[float]) -> float:
    """The median loss of the spans with queries, which are every second one, against the mean of the two around each."""
    return median(
        1 - 2 * asked / (before + after) for before, asked, after in zip(rates[::2], rates[1::2], rates[2::2], strict=False)
    )


def _span(application: Application, admin: Admin, *, is_asked: bool) -> Span:
    began_ms = time.time() * 1000
    driver_cpu_s, client_cpu_s = -application.cpu_seconds()["application"], -_children_cpu_s()
    answers: dict[str, Any] = {"milliseconds": [], "failures": 0}
    if is_asked:
        command = [sys.executable, "-m", "verification.operations.query_load", f"--port={admin.port}", f"--rate={RATE}"]
        command += [f"--seconds={SPAN_S}", f"--keys={KEYS}", f"--seed={int(began_ms) % 1000}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10 * SPAN_S)
        answers = json.loads(done.stdout)
    else:
        time.sleep(SPAN_S)
    ended_ms = time.time() * 1000
    driver_cpu_s += application.cpu_seconds()["application"]
    client_cpu_s += _children_cpu_s()
    within = [
        epoch
        for epoch in reversed(admin.get("/debug/barriers?last=200").json()["recent"])
        if epoch["began_ms"] >= began_ms and epoch["began_ms"] + 1000 * epoch["seconds"] <= ended_ms
    ]
    if len(within) < 3:
        raise HarnessError(f"only {len(within)} whole epochs in {SPAN_S} s")
    first, last = within[0], within[-1]
    took_s = (last["began_ms"] - first["began_ms"]) / 1000 + last["seconds"]
    rate = sum(epoch["records"] for epoch in within) / took_s
    return Span(is_asked, rate, answers["milliseconds"], answers["failures"], driver_cpu_s, client_cpu_s)


def _children_cpu_s() -> float:
    """CPU time of the clients."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _driver_cpu(spans: list[Span]) -> float:
    """Seconds of CPU per second; the driver also works for records."""
    return median(span.driver_cpu_s for span in spans) / SPAN_S


def _percentile(ordered: list[float], fraction: float) -> float:
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def _line(span: Span) -> str:
    if not span.is_asked:
        return f"queries: alone: {span.records_per_s:,.0f} records/s"
    p95 = _percentile(sorted(span.milliseconds), 0.95)
    return f"queries: asked: {span.records_per_s:,.0f} records/s, p95 {p95:.1f} ms, {span.failures} failures"
