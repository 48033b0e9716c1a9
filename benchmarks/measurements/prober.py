"""Sends records at a steady rate, and notes when the result of each probe arrives.

A probe has a key of its own, so its result belongs to it alone. At most 1,000 records per second are probes; the others have
keys that repeat. Latency counts from when a record was due, not from when it was sent, so that a stalled sender does not hide it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from benchmarks.measurements import sinks
from benchmarks.sides.application import Application
from benchmarks.sides.job import Job, Progress
from benchmarks.workloads.documents import document
from benchmarks.workloads.results import compare, pair
from benchmarks.workloads.workload import WrongResultError
from verification.harness.processes import HarnessError, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

READY_TIMEOUT_S = 300
PROBES_PER_S = 1_000
OTHER_KEYS = 100_000
AMOUNT = 5
TICK_S = 0.002
"""Records that are due within this time are sent together."""


class Prober:
    """A sender, and a reader of the results in a thread."""

    def __init__(self, job: Job, other_keys: int = OTHER_KEYS) -> None:
        self._job = job
        self._source = job.sources[0]
        self._other_keys = other_keys
        self._others: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": job.bootstrap_servers, "linger.ms": 1, "partitioner": "murmur2_random"})
        self._consumer = sinks.reader(job.bootstrap_servers, job.sink, at_end=True)
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._sent = 0
        self.due: dict[int, float] = {}
        """When each probe was due, by number."""
        self.arrived_at: dict[int, float] = {}
        self.twice: list[int] = []

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._reader.join()
        self._consumer.close()

    def wait_until_ready(self, application: Application) -> None:
        """Send a probe, and wait for its result."""
        self._probe(time.monotonic())
        end = time.monotonic() + READY_TIMEOUT_S
        while not self.arrived_at:
            application.check()
            if time.monotonic() > end:
                raise HarnessError(f"no result within {READY_TIMEOUT_S} s:\n{application.log_tail()}")
            time.sleep(0.1)

    def send(self, rate: int, seconds: float, probes_per_s: int = PROBES_PER_S) -> range:
        """Send at a steady rate; return the numbers of the records."""
        began, first = time.monotonic(), self._sent
        every = max(1, round(rate / probes_per_s))
        for position in range(round(rate * seconds)):
            at = began + position / rate
            if at > time.monotonic():
                self._producer.poll(0)
                time.sleep(TICK_S)
            if position % every == 0:
                self._probe(at)
            else:
                key = f"k{self._sent % self._other_keys}"
                self._others[key] += 1
                self._produce(key)
        return range(first, self._sent)

    def wait_for_all(self, timeout_s: float) -> None:
        """Wait until each probe has its result."""
        self._producer.flush(timeout_s)
        end = time.monotonic() + timeout_s
        while len(self.arrived_at) < len(self.due):
            if time.monotonic() > end:
                missing = len(self.due) - len(self.arrived_at)
                raise HarnessError(f"{missing} of {len(self.due)} probes have no result {timeout_s:g} s after the last was sent")
            time.sleep(0.05)
        if self.twice:
            raise HarnessError(f"{len(self.twice)} probes have two results, such as number {self.twice[0]}")

    def wait_until_committed(self, progress: Progress, timeout_s: float) -> None:
        """Wait until all records are committed, those that are no probes, too."""
        with closing(progress):
            wait_until(
                "all records are committed", lambda: progress.records() >= self._sent, timeout_s, progress=progress.records
            )

    def check_totals(self) -> None:
        """Read all results of `totals`: each probe has one, and the last of each other key counts each of its records once."""
        found: dict[str, list[int]] = {}
        for raw_key, value in sinks.results(self._job.bootstrap_servers, self._job.sink):
            key = raw_key.decode()
            if key in found and key not in self._others:
                raise WrongResultError(f"{key} has two results: {found[key]} and {pair(value)}")
            found[key] = pair(value)
        counts = {**{f"n-{number}": 1 for number in self.due}, **self._others}
        compare({key: [count, count * AMOUNT] for key, count in counts.items()}, found)

    def latencies_ms(self, numbers: range) -> list[float]:
        """The latencies of the probes among these records, in order of size."""
        return sorted((self.arrived_at[number] - self.due[number]) * 1000 for number in numbers if number in self.due)

    def _probe(self, at: float) -> None:
        self.due[self._sent] = at
        self._produce(f"n-{self._sent}")

    def _produce(self, key: str) -> None:
        value = document(self._sent, key, AMOUNT)
        while True:
            try:
                self._producer.produce(self._source, value, key)
                break
            except BufferError:
                self._producer.poll(0.01)
        self._sent += 1

    def _read(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(sinks.CHUNK, timeout=0.01):
                key = message.key() or b""
                _, is_probe, number = key.rpartition(b"n-")
                if not is_probe:
                    continue
                if int(number) in self.arrived_at:
                    self.twice.append(int(number))
                self.arrived_at[int(number)] = time.monotonic()
