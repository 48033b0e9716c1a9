"""A run of the bench: its options, brokers, jobs, and the sides that take part."""

from __future__ import annotations

import compileall
import gc
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

import penstock
from benchmarks.measurements import sinks
from benchmarks.report.report import Place, Report
from benchmarks.sides import kafka_streams, quix, spark
from benchmarks.sides.job import Candidates, Job, Side
from benchmarks.sides.penstock import Penstock, PenstockColumns
from benchmarks.workloads.loading import PARTITIONS, Loaded, create, load
from benchmarks.workloads.workload import Workload, WrongResultError
from verification.harness import topics
from verification.harness.broker import NEVER_KILLED, Broker
from verification.harness.patience import TIMEOUT_S
from verification.harness.processes import HarnessError

BROKER = {**NEVER_KILLED, "log.cleaner.backoff.ms": "15000"}
"""The cleaner's time is Kafka's default: that of the harness keeps it busy."""

SETTLE_S, QUIET_FOR_S, QUIET_PERCENT = 60, 3, 10
WARM_UP_S, WARM_UP_PARTITIONS, WARM_UP_RECORDS = 20, 20, 2_000
SIDES: dict[str, Candidates] = {
    "penstock": [Penstock()],
    "penstock-columns": [PenstockColumns()],
    "kafka-streams": kafka_streams.candidates(),
    "spark": spark.candidates(),
    "spark-real-time": [spark.SparkRealTime()],
    "quix": quix.candidates(),
}
INVALID = (HarnessError, WrongResultError, KafkaException, psutil.Error, subprocess.SubprocessError, OSError)
"""What makes a run invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked for."""

    rounds: int = 3
    sides: tuple[str, ...] = tuple(SIDES)
    scale: float = 1.0
    """The share of all sizes: records, keys, seconds."""

    def scaled(self, size: float, least: int = 1) -> int:
        """A size of this run."""
        return max(least, round(size * self.scale))


class Bench:
    """A directory, options, and the report so far."""

    def __init__(self, directory: Path, options: Options, report: Report) -> None:
        self.directory = directory
        self.options = options
        self.report = report
        self._names = count(1)
        compileall.compile_dir(Path(penstock.__file__).parent, quiet=2)  # as in an installed wheel

    def fresh(self, name: str) -> str:
        """A name that nothing else has in this run."""
        return f"{name}-{next(self._names):04}"

    @contextmanager
    def tolerance(self, place: Place) -> Iterator[None]:
        """A run that is invalid is noted, and the bench goes on with the next."""
        try:
            yield
        except INVALID as error:
            self.report.fail(place, error)

    @contextmanager
    def broker(self) -> Iterator[Broker]:
        """A new broker: what earlier applications left behind does not slow down the next."""
        with Broker(heap="1g", settings=BROKER) as broker:
            _warm_up(broker, self.options.scaled(WARM_UP_S))
            yield broker
            gc.collect()  # clients that are garbage would go on looking for it

    def entrants(self, topology: str, place: Place, names: Sequence[str] | None = None) -> dict[str, Candidates]:
        """The sides that were asked for and can run a topology; the report says why the others cannot."""
        found: dict[str, Candidates] = {}
        for name in self.options.sides:
            if names is not None and name not in names:
                continue
            excuse = SIDES[name][0].excuse(topology)
            if excuse is None:
                found[name] = SIDES[name]
            else:
                self.report.leave_out((*place, name), excuse)
        return found

    def records(self, workload: Workload, share: float) -> int:
        """How many records of a workload a side with this share is given."""
        return self.options.scaled(workload.records * share)

    def load(self, broker: Broker, workload: Workload, share: float = 1.0, partitions: int = PARTITIONS) -> Loaded:
        """Load the records of a workload, or a share of them."""
        records = self.records(workload, share)
        began = time.monotonic()
        loaded = load(broker.bootstrap_servers, workload, records, name=self.fresh("in"), partitions=partitions)
        print(f"{time.strftime('%H:%M:%S')} loaded {loaded.records:,} records in {time.monotonic() - began:.0f} s", flush=True)
        return loaded

    @contextmanager
    def job(
        self,
        broker: Broker,
        side: Side,
        name: str,
        topology: str,
        sources: tuple[str, ...],
        *,
        partitions: int = PARTITIONS,
        cores: int = 2,
    ) -> Iterator[Job]:
        """A new job with its own name, sink and state, on an idle broker; its topics and its state end with the block."""
        _settle(broker)
        application_id = self.fresh(f"{name}-{side.name}")
        create(broker.bootstrap_servers, f"{application_id}-out", partitions)
        job = Job(
            application_id=application_id,
            topology=topology,
            sources=sources,
            sink=f"{application_id}-out",
            bootstrap_servers=broker.bootstrap_servers,
            state_dir=self.directory / application_id,
            partitions=partitions,
            cores=cores,
        )
        self.report.ran_on[side.name] = job.ran_on
        try:
            yield job
        finally:
            _delete_topics(job)
            shutil.rmtree(job.state_dir, ignore_errors=True)


def in_turn(names: Sequence[str], number: int) -> list[str]:
    """The names, each round beginning with another one: a machine that gets slower does not favour the first."""
    shift = number % len(names) if names else 0
    return [*names[shift:], *names[:shift]]


def _warm_up(broker: Broker, seconds: float) -> None:
    """Send and read transactions for a while: a broker that has just started compiles its code while it serves the first side."""
    create(broker.bootstrap_servers, "warm-up", WARM_UP_PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "warm-up", "log_level": 4})
    producer.init_transactions(TIMEOUT_S)
    with closing(sinks.reader(broker.bootstrap_servers, "warm-up", at_end=True)) as consumer:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            producer.begin_transaction()
            for number in range(WARM_UP_RECORDS):
                producer.produce("warm-up", bytes(100), partition=number % WARM_UP_PARTITIONS)
            producer.commit_transaction(TIMEOUT_S)
            consumer.consume(WARM_UP_RECORDS, timeout=1)
    topics.delete(broker.bootstrap_servers, "warm-up")


def _settle(broker: Broker) -> None:
    """Wait until the broker is idle: it compacts and deletes an application's topics for a while."""
    process, end = psutil.Process(broker.pid), time.monotonic() + SETTLE_S
    quiet = 0
    while quiet < QUIET_FOR_S and time.monotonic() < end:
        quiet = quiet + 1 if process.cpu_percent(1.0) < QUIET_PERCENT else 0


def _delete_topics(job: Job) -> None:
    """Delete the sink and the internal topics of an application, so that they do not fill the disk."""
    admin = AdminClient({"bootstrap.servers": job.bootstrap_servers, "log_level": 4})
    own = [name for name in admin.list_topics(timeout=TIMEOUT_S).topics if job.application_id in name]
    for deleted in admin.delete_topics(own).values():
        deleted.result(TIMEOUT_S)
