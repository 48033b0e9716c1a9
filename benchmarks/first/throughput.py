"""Records per second, measured from outside in the same way for both sides: by the group's committed offsets.

The topic holds twice the requested number of records. The first half is the cold figure, from the first commit on; the
second, which the same process reads when it is warm, is the warm one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from benchmarks.first import results
from benchmarks.first.applications import Application
from benchmarks.first.sides import Job
from benchmarks.first.workload import PARTITIONS, Loaded
from verification.harness.processes import HarnessError

TIMEOUT_S = 600
POLL_EVERY_S = 0.05
NO_COORDINATOR_YET = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The progress of an application, and its cost so far."""

    at_s: float
    records: int
    cpu_s: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One run."""

    cold_per_s: float
    warm_per_s: float
    first_commit_s: float
    wall_s: float
    results: int
    peak_rss_mb: float
    warm_cpu_s: dict[str, float]


class Committed:
    """The records of a source that a group has committed."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str) -> None:
        # Offsets of an open transaction do not count: by default librdkafka requests stable ones.
        self._consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False})
        self._partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]

    def records(self) -> int:
        """The current number; none while the broker is still locating the group."""
        try:
            return sum(max(0, at.offset) for at in self._consumer.committed(self._partitions, timeout=30))
        except KafkaException as error:
            if error.args[0].code() in NO_COORDINATOR_YET:
                return 0
            raise

    def wait_for(self, records: int, application: Application) -> int:
        """Wait until at least this many are committed."""
        end = time.monotonic() + TIMEOUT_S
        while (done := self.records()) < records:
            application.check()
            if time.monotonic() > end:
                raise HarnessError(f"{done} of {records} records after {TIMEOUT_S} s:\n{application.log_tail()}")
            time.sleep(POLL_EVERY_S)
        return done

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


def measure(application: Application, job: Job, loaded: Loaded, broker_pid: int) -> Throughput:
    """Process all records once, and check the sums."""
    broker = psutil.Process(broker_pid)
    committed = Committed(job.bootstrap_servers, job.application_id, job.source)

    def reach(records: int) -> Sample:
        done = committed.wait_for(records, application)
        now, times = time.monotonic(), broker.cpu_times()
        return Sample(at_s=now, records=done, cpu_s={**application.cpu_seconds(), "broker": times.user + times.system})

    with application:
        first, half, last = reach(1), reach(loaded.records // 2), reach(loaded.records)
    committed.close()
    return Throughput(
        cold_per_s=_rate(first, half),
        warm_per_s=_rate(half, last),
        first_commit_s=first.at_s - application.started_at,
        wall_s=last.at_s - application.started_at,
        results=results.check(job.bootstrap_servers, job.sink, loaded.totals),
        peak_rss_mb=application.peak_rss_bytes / 1e6,
        warm_cpu_s={part: last.cpu_s[part] - half.cpu_s.get(part, 0.0) for part in last.cpu_s},
    )


def _rate(start: Sample, end: Sample) -> float:
    return (end.records - start.records) / (end.at_s - start.at_s)
