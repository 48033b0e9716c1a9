"""Records per second that are enriched by a service that takes 20 ms to respond, exactly once and in order per key.

Measured from outside, by the group's committed offsets: the first half is the cold figure, the second the warm one.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.sides.application import Application
from benchmarks.sides.job import Job, Progress
from benchmarks.sides.penstock import Penstock
from benchmarks.time.service import ANSWER_S, Service
from benchmarks.workloads import loading
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import HarnessError

KEYS = 5_000
LANES = 2
TIMEOUT_S = 900
POLL_EVERY_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking(Penstock):
    """The application as a side of the bench."""

    url: str
    concurrency: int
    epoch_records: int

    def command(self, job: Job) -> list[str]:
        """The command that starts it."""
        where = [job.sources[0], job.sink, job.application_id, job.bootstrap_servers, str(job.state_dir)]
        limits = [str(self.concurrency), str(self.epoch_records)]
        return [sys.executable, "-m", "benchmarks.time.application", *where, self.url, *limits]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrichment:
    """One run; `limit_per_s` is the maximum rate of that many concurrent calls, `cpu_us` is per warm record, by part."""

    cold_per_s: float
    warm_per_s: float
    limit_per_s: float
    epoch_p50_s: float
    epoch_records: int
    concurrency: int
    records: int
    cpu_us: dict[str, float]
    peak_rss_mb: float
    ran_on: dict[str, Any]


def measure(broker: Broker, directory: Path, records: int, concurrency: int, epoch_records: int) -> Enrichment:
    """Enrich them all, and check every answer."""
    _load(broker.bootstrap_servers, records)
    loading.create(broker.bootstrap_servers, "enriched")
    job = Job(
        application_id="enrichment",
        topology="enriched",
        sources=("plain",),
        sink="enriched",
        bootstrap_servers=broker.bootstrap_servers,
        state_dir=directory / "enrichment",
    )
    with Service() as service:
        side = Asking(url=service.url, concurrency=concurrency, epoch_records=epoch_records)
        with Application(side, job) as application:
            steps = list(_steps(side.progress(job), application, service, records))
            peak = application.peak_rss_bytes
    _check(job.bootstrap_servers, job.sink, records)
    first, last = steps[0], steps[-1]
    half = next(step for step in steps if step.records >= records // 2)
    warm = last.records - half.records
    return Enrichment(
        cold_per_s=(half.records - first.records) / (half.at_s - first.at_s),
        warm_per_s=warm / (last.at_s - half.at_s),
        limit_per_s=LANES * concurrency / ANSWER_S,
        epoch_p50_s=statistics.median(later.at_s - step.at_s for step, later in pairwise(steps)),
        epoch_records=epoch_records,
        concurrency=concurrency,
        records=records,
        cpu_us={part: (spent - half.cpu_s.get(part, 0.0)) * 1e6 / warm for part, spent in last.cpu_s.items()},
        peak_rss_mb=peak / 1e6,
        ran_on=job.ran_on,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """The progress of the application right after a commit, and the total cost so far."""

    at_s: float
    records: int
    cpu_s: dict[str, float]


def _steps(committed: Progress, application: Application, service: Service, records: int) -> Any:
    end, done = time.monotonic() + TIMEOUT_S, 0
    while done < records:
        application.check()
        if time.monotonic() > end:
            raise HarnessError(f"{done} of {records} records after {TIMEOUT_S} s:\n{application.log_tail()}")
        now = committed.records()
        if now > done:
            done = now
            yield _Step(time.monotonic(), done, {**application.cpu_seconds(), "service": service.cpu_seconds()})
        time.sleep(POLL_EVERY_S)
    committed.close()


def _load(bootstrap_servers: str, records: int) -> None:
    loading.create(bootstrap_servers, "plain")
    sent = (
        topics.Sent(key=f"k{number % KEYS}".encode(), value=json.dumps({"number": number}).encode()) for number in range(records)
    )
    topics.produce(bootstrap_servers, "plain", sent)


def _check(bootstrap_servers: str, sink: str, records: int) -> None:
    """Check that every answer is there once, is right, and follows the previous one of its key."""
    found: dict[bytes | None, list[int]] = defaultdict(list)
    for record in topics.read(bootstrap_servers, sink):
        value = json.loads(record.value or b"")
        if value["answer"] != 3 * value["number"]:
            raise HarnessError(f"{record.key!r}: {value} is not the service's answer")
        found[record.key].append(value["number"])
    expected = {f"k{key}".encode(): list(range(key, records, KEYS)) for key in range(min(KEYS, records))}
    wrong = [key for key in expected.keys() | found.keys() if found.get(key) != expected.get(key or b"")]
    if wrong:
        key = wrong[0]
        raise HarnessError(f"{len(wrong)} keys are wrong; {key!r}: {found.get(key)}, not {expected.get(key or b'')}")
