"""End-to-end latency: from when a record was due to be sent until a consumer has received its committed result.

Every key is new, so each result belongs to one record. Latency counts from when a record was due, not from when it was
sent, so that a stalled sender does not hide it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from benchmarks.first import results, workload
from benchmarks.first.applications import Application
from benchmarks.first.sides import Job
from verification.harness.processes import HarnessError

if TYPE_CHECKING:
    from typing_extensions import Self

READY_TIMEOUT_S = 300
LAST_RESULTS_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The latencies of the records sent after the warm-up."""

    p50: float
    p95: float
    p99: float
    max: float
    records: int
    peak_rss_mb: float


class Prober:
    """Sends numbered records and records when the result of each arrives."""

    def __init__(self, job: Job) -> None:
        self._source = job.source
        self._producer = Producer({"bootstrap.servers": job.bootstrap_servers, "linger.ms": 1, "partitioner": "murmur2_random"})
        self._consumer = results.reader(job.bootstrap_servers, job.sink, at_end=True)
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self.sent = 0
        self.arrived_at: dict[int, float] = {}
        self.twice: list[int] = []

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._reader.join()
        self._consumer.close()

    def send(self) -> int:
        """Send the next record and return its number."""
        number = self.sent
        key = f"n-{number}"
        self._producer.produce(self._source, workload.value(number, key, 5), key)
        self._producer.poll(0)
        self.sent += 1
        return number

    def send_at_rate(self, rate: int, seconds: float) -> dict[int, float]:
        """Send at a steady rate; return when each record was due."""
        due: dict[int, float] = {}
        began = time.monotonic()
        for position in range(round(rate * seconds)):
            at = began + position / rate
            time.sleep(max(0.0, at - time.monotonic()))
            due[self.send()] = at
        return due

    def wait_for_all(self, timeout_s: float) -> None:
        """Wait until each record has its result."""
        self._producer.flush(timeout_s)
        end = time.monotonic() + timeout_s
        while len(self.arrived_at) < self.sent:
            if time.monotonic() > end:
                raise HarnessError(
                    f"{self.sent - len(self.arrived_at)} of {self.sent} records have no result after {timeout_s:g} s"
                )
            time.sleep(0.05)

    def _read(self) -> None:
        while not self._over.is_set():
            for key, _ in results.arriving(self._consumer):
                number = int(key.rpartition("-")[2])
                if number in self.arrived_at:
                    self.twice.append(number)
                self.arrived_at[number] = time.monotonic()


def measure(application: Application, job: Job, *, rate: int, warm_up_s: float, seconds: float) -> Latency:
    """Warm up at the rate, then measure at the rate."""
    with application, Prober(job) as prober:
        prober.send()
        _wait_until_ready(prober, application)
        prober.send_at_rate(rate, warm_up_s)
        due = prober.send_at_rate(rate, seconds)
        application.check()
        prober.wait_for_all(LAST_RESULTS_S)
    if prober.twice:
        raise HarnessError(f"{len(prober.twice)} records have two results, such as number {prober.twice[0]}")
    took_ms = sorted((prober.arrived_at[number] - at) * 1000 for number, at in due.items())
    return Latency(
        p50=_percentile(took_ms, 50),
        p95=_percentile(took_ms, 95),
        p99=_percentile(took_ms, 99),
        max=took_ms[-1],
        records=len(took_ms),
        peak_rss_mb=application.peak_rss_bytes / 1e6,
    )


def _wait_until_ready(prober: Prober, application: Application) -> None:
    end = time.monotonic() + READY_TIMEOUT_S
    while not prober.arrived_at:
        application.check()
        if time.monotonic() > end:
            raise HarnessError(f"no result within {READY_TIMEOUT_S} s:\n{application.log_tail()}")
        time.sleep(0.1)


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
