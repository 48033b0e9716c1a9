"""The application as a user runs it: real Spark, a real broker, one Java virtual machine and one broker for all runs."""

from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from harness.broker import Broker
from harness.processes import HarnessError, wait_until
from integration.contents import contents, restored
from integration.cut import Cut
from integration.inputs import SHARDS
from integration.scenario import SINK_PARTITIONS, Fed, Phase, Result, Scenario, Sent, Setup
from penstock import App
from penstock.epochs.program import changelog_topic, lanes_topic
from penstock.epochs.shards import shard_of
from penstock.running.running import Running
from penstock.spark.session import open_session
from penstock.topology import SourceNode

TIMEOUT_S = 120
LANES_MAX = 5
CHUNK = 10_000
EVERY_S = 0.05

Partition = tuple[str, int]


class _Run:
    """One application: what it is called, what it runs, which topics it has."""

    def __init__(self, application_id: str, scenario: Scenario, phases: Sequence[Phase], caching: bool) -> None:
        self.application_id = application_id
        self.scenario = scenario
        self.phases = phases
        self.setup = Setup(caching, f"{application_id}-")
        self.topology = scenario.build(self.setup)
        tables = self.topology.global_stores
        self.logged = [spec for name, spec in self.topology.stores.items() if spec.logged and name not in tables]
        nodes = [node for node in self.topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
        self.sources = [topic for node in nodes if node.name not in tables.values() for topic in node.topics]
        self.partitions = {lanes_topic(application_id): SHARDS}
        self.partitions |= {changelog_topic(application_id, spec.name): SHARDS for spec in self.logged}
        self.partitions |= {self.setup.topic(output.topic): SINK_PARTITIONS for output in scenario.outputs}
        fed = {record.topic for phase in phases for record in phase.records}
        self.partitions |= {self.setup.topic(topic): scenario.input_partitions for topic in fed}

    def partition_of(self, key: bytes | None) -> int:
        """Where a record is fed."""
        return 0 if key is None else shard_of(key, self.scenario.input_partitions)


class SparkHost:
    """A broker and a Spark session, for one application after the other; as a context manager both are ended on exit."""

    def __init__(self) -> None:
        self._broker = Broker()
        self._numbers = itertools.count(1)

    def __enter__(self) -> SparkHost:  # noqa: PYI034 - Self is newer than Python 3.10
        with ExitStack() as opening:
            opening.enter_context(self._broker)
            session = open_session("integration", LANES_MAX, {"master": "local[2]"})
            opening.callback(session.stop)
            self._servers: dict[str, Any] = {"bootstrap.servers": self._broker.bootstrap_servers}
            self._admin = AdminClient(self._servers)
            self._producer = Producer({**self._servers, "linger.ms": 5, "enable.idempotence": True})
            opening.callback(self._disconnect)
            self._open = opening.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def _disconnect(self) -> None:
        """Let go of the broker before it goes."""
        del self._admin, self._producer

    def run(self, scenario: Scenario, phases: Sequence[Phase], caching: bool, cut: Cut) -> Result:
        """The result of a scenario on Spark."""
        run = _Run(f"{scenario.slug}-{next(self._numbers)}", scenario, phases, caching)
        self._create(run)
        if not cut.is_uneven:
            self._produce(run, phases[0].records)
        with tempfile.TemporaryDirectory(prefix="penstock-integration-") as directory:
            running = App(run.application_id, run.topology).start(
                bootstrap_servers=self._broker.bootstrap_servers,
                state_dir=directory,
                lanes=cut.lanes,
                shards=SHARDS,
                max_epoch_records=cut.epoch_records,
                # Both ways to run an epoch: in one task where it is small, over all lanes' tasks where it is not.
                small_epoch_records=50,
                epoch_interval="10ms",
                admin_address="127.0.0.1:0",
            )
            with running:
                self._feed(run, running, cut)
                epochs = running.epoch + 1
            running.wait()
        self._check_input(run)
        result = self._result(run, epochs)
        self._admin.delete_topics(list(run.partitions))  # a broker with thousands of partitions is slow
        return result

    def _feed(self, run: _Run, running: Running, cut: Cut) -> None:
        """One phase after the other; the first one is there already, as it is for an application that starts late.

        For uneven epochs each phase comes piece by piece, each of which is read before the next is there.
        """
        for number, phase in enumerate(run.phases):
            if cut.is_uneven:
                self._feed_unevenly(run, running, phase, cut)
            elif number:
                self._produce(run, phase.records)
            self._wait_until_read(run, running)
            if phase.advance_ms:
                _wait_for_epochs(running, running.epoch + 3)

    def _feed_unevenly(self, run: _Run, running: Running, phase: Phase, cut: Cut) -> None:
        left, sizes = list(phase.records), cut.sizes()
        while left:
            size = next(sizes)
            self._produce(run, left[:size])
            self._wait_until_read(run, running)
            del left[:size]

    def _wait_until_read(self, run: _Run, running: Running) -> None:
        """Until everything in the source topics is committed, also what the application itself has written there."""
        names = run.sources
        group = Consumer({**self._servers, "group.id": run.application_id})

        def is_read() -> bool:
            if running.wait(0):
                return True
            ends = self._ends(run, names)
            if ends != self._ends(run, names, IsolationLevel.READ_UNCOMMITTED):
                return False
            committed = group.committed([TopicPartition(*place) for place in ends], timeout=TIMEOUT_S)
            return all(at.offset >= ends[at.topic, at.partition] for at in committed)

        try:
            running.wait_until_running(TIMEOUT_S)
            wait_until(f"{run.application_id} has read {', '.join(names)}", is_read, TIMEOUT_S, EVERY_S)
        finally:
            group.close()

    def _check_input(self, run: _Run) -> None:
        """Make sure that the application was fed what the test driver is: retries of a producer may change the order."""
        fed: defaultdict[Partition, list[Sent]] = defaultdict(list)
        for phase in run.phases:
            for topic, key, value, timestamp, headers in phase.records:
                partition = run.partition_of(key)
                fed[run.setup.topic(topic), partition].append(Sent(key, value, timestamp, headers, partition))
        found = self._read(run, list({topic for topic, _ in fed}))
        for (topic, partition), records in fed.items():
            if records != [record for record in found[topic] if record.partition == partition]:
                raise HarnessError(f"{topic}-{partition} does not hold what was fed, in that order")

    def _result(self, run: _Run, epochs: int) -> Result:
        changelogs = {changelog_topic(run.application_id, spec.name): spec.name for spec in run.logged}
        outputs = {run.setup.topic(output.topic): output.topic for output in run.scenario.outputs}
        found = self._read(run, [*changelogs, *outputs])
        rows: dict[str, tuple[list[bytes], list[bytes | None]]] = {
            store: ([record.key for record in found[topic]], [record.value for record in found[topic]])  # type: ignore[misc]
            for topic, store in changelogs.items()
        }
        sent = {name: found[topic] for topic, name in outputs.items() if found[topic]}
        return Result(sent, {"changelogs": contents(restored(rows, run.logged), run.logged)}, epochs)

    # ---- the broker ---------------------------------------------------------------------------------------------------

    def _create(self, run: _Run) -> None:
        own = {changelog_topic(run.application_id, spec.name) for spec in run.logged} | {lanes_topic(run.application_id)}
        new = [NewTopic(name, count, 1) for name, count in run.partitions.items() if name not in own]
        for created in self._admin.create_topics(new).values():
            created.result(TIMEOUT_S)
        names = {topic.topic for topic in new}
        wait_until(
            "topics are known", lambda: names <= self._admin.list_topics(timeout=TIMEOUT_S).topics.keys(), TIMEOUT_S, EVERY_S
        )

    def _produce(self, run: _Run, records: Sequence[Fed]) -> None:
        failures: list[str] = []

        def delivered(error: object, _: Message) -> None:
            if error is not None:
                failures.append(str(error))

        for topic, key, value, timestamp, headers in records:
            name, extra = run.setup.topic(topic), list[tuple[str, str | bytes | None]](headers)
            self._producer.produce(name, value, key, run.partition_of(key), delivered, timestamp=timestamp, headers=extra)
            self._producer.poll(0)
        left = self._producer.flush(TIMEOUT_S)
        if left or failures:
            raise HarnessError(f"{left} records unsent, {len(failures)} failed: {failures[:3]}")

    def _ends(
        self, run: _Run, names: Iterable[str], level: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[Partition, int]:
        places = [TopicPartition(name, partition) for name in names for partition in range(run.partitions[name])]
        answers = self._admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), isolation_level=level)
        return {(place.topic, place.partition): answer.result(TIMEOUT_S).offset for place, answer in answers.items()}

    def _read(self, run: _Run, names: Sequence[str]) -> Mapping[str, list[Sent]]:
        """All committed records of some topics, by topic; within a partition in order.

        A commit is answered before all partitions have heard of it: they are waited for.
        """

        def is_settled() -> bool:
            return self._ends(run, names) == self._ends(run, names, IsolationLevel.READ_UNCOMMITTED)

        wait_until(f"transactions of {run.application_id} are settled", is_settled, TIMEOUT_S, EVERY_S)
        ends = {place: end for place, end in self._ends(run, names).items() if end}
        found: dict[str, list[Sent]] = {name: [] for name in names}
        consumer = Consumer(
            {
                **self._servers,
                "group.id": "integration",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        asked = [TopicPartition(topic, partition, 0) for topic, partition in ends]

        def is_read() -> bool:
            for message in consumer.consume(CHUNK, timeout=0.05):
                found[message.topic() or ""].append(_sent(message))
            positions = consumer.position(asked)
            return all(position.offset >= ends[position.topic, position.partition] for position in positions)

        try:
            if asked:
                consumer.assign(asked)
                wait_until(f"{', '.join(names)} read", is_read, TIMEOUT_S, 0)
        finally:
            consumer.close()
        return found


def _sent(message: Any) -> Sent:
    if message.error() is not None:
        raise HarnessError(f"{message.topic()}: {message.error()}")
    headers = tuple(message.headers() or ())
    return Sent(message.key(), message.value(), message.timestamp()[1], headers, message.partition())


def _wait_for_epochs(running: Running, epoch: int) -> None:
    """Until the clock has brought epochs about."""
    wait_until("epochs by the clock", lambda: running.epoch >= epoch, TIMEOUT_S, EVERY_S)
