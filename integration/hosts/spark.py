"""The application as a user runs it: real Spark, a real broker, one Java virtual machine and one broker for all runs."""

from __future__ import annotations

import itertools
import tempfile
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
from integration.scenario import SINK_PARTITIONS, Phase, Result, Scenario, Sent, Setup
from penstock import App, Topology
from penstock.epochs.program import changelog_topic
from penstock.epochs.shards import shard_of
from penstock.running.running import Running
from penstock.spark.session import open_session
from penstock.topology import SourceNode

TIMEOUT_S = 120
LANES_MAX = 5
CHUNK = 10_000

Partition = tuple[str, int]


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
            self._producer = Producer({**self._servers, "linger.ms": 5, "max.in.flight.requests.per.connection": 1})
            self._open = opening.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def run(self, scenario: Scenario, phases: Sequence[Phase], caching: bool, cut: Cut) -> Result:
        """The result of a scenario on Spark."""
        application_id = f"{scenario.slug}-{next(self._numbers)}"
        setup = Setup(caching, f"{application_id}-")
        topology = scenario.build(setup)
        self._create(setup, scenario, phases)
        self._produce(setup, scenario, phases[0])
        with tempfile.TemporaryDirectory(prefix="penstock-integration-") as directory:
            running = App(application_id, topology).start(
                bootstrap_servers=self._broker.bootstrap_servers,
                state_dir=directory,
                lanes=cut.lanes,
                shards=SHARDS,
                max_epoch_records=cut.epoch_records,
                # Both ways to run an epoch: in one task where it is small, over all lanes' tasks where it is not.
                small_epoch_records=50,
                epoch_interval="10ms",
            )
            with running:
                self._feed(application_id, setup, topology, scenario, phases, running)
                epochs = running.epoch + 1
            running.wait()
        return self._result(application_id, setup, topology, scenario, epochs)

    def _feed(
        self,
        application_id: str,
        setup: Setup,
        topology: Topology,
        scenario: Scenario,
        phases: Sequence[Phase],
        running: Running,
    ) -> None:
        """One phase after the other; the first one is there already, as it is for an application that starts late."""
        for number, phase in enumerate(phases):
            if number:
                self._produce(setup, scenario, phase)
            self._wait_until_read(application_id, topology, running)
            if phase.advance_ms:
                after = running.epoch
                wait_until("epochs by the clock", lambda after=after: running.epoch >= after + 3, TIMEOUT_S, 0.02)  # type: ignore[misc]

    def _wait_until_read(self, application_id: str, topology: Topology, running: Running) -> None:
        """Until everything in the source topics is committed, also what the application itself has written there."""
        sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
        names = [topic for node in sources if node.name not in topology.global_stores.values() for topic in node.topics]
        group = Consumer({**self._servers, "group.id": application_id})

        def is_read() -> bool:
            if running.wait(0):
                return True
            ends = self._ends(names)
            if ends != self._ends(names, IsolationLevel.READ_UNCOMMITTED):
                return False
            committed = group.committed([TopicPartition(*place) for place in ends], timeout=TIMEOUT_S)
            return all(at.offset >= ends[at.topic, at.partition] for at in committed)

        try:
            running.wait_until_running(TIMEOUT_S)
            wait_until(f"{application_id} has read {', '.join(names)}", is_read, TIMEOUT_S, 0.02)
        finally:
            group.close()

    def _result(self, application_id: str, setup: Setup, topology: Topology, scenario: Scenario, epochs: int) -> Result:
        logged = [spec for name, spec in topology.stores.items() if spec.logged and name not in topology.global_stores]
        changelogs = {changelog_topic(application_id, spec.name): spec.name for spec in logged}
        outputs = {setup.topic(output.topic): output.topic for output in scenario.outputs}
        found = self._read([*changelogs, *outputs])
        rows: dict[str, tuple[list[bytes], list[bytes | None]]] = {
            store: ([record.key for record in found[topic]], [record.value for record in found[topic]])  # type: ignore[misc]
            for topic, store in changelogs.items()
        }
        sent = {name: found[topic] for topic, name in outputs.items() if found[topic]}
        return Result(sent, {"changelogs": contents(restored(rows, logged), logged)}, epochs)

    # ---- the broker ---------------------------------------------------------------------------------------------------

    def _create(self, setup: Setup, scenario: Scenario, phases: Sequence[Phase]) -> None:
        partitions = {record.topic: scenario.input_partitions for phase in phases for record in phase.records}
        for output in scenario.outputs:
            partitions.setdefault(output.topic, SINK_PARTITIONS)
        new = [NewTopic(setup.topic(name), count, 1) for name, count in partitions.items()]
        for created in self._admin.create_topics(new).values():
            created.result(TIMEOUT_S)

    def _produce(self, setup: Setup, scenario: Scenario, phase: Phase) -> None:
        failures: list[str] = []

        def delivered(error: object, _: Message) -> None:
            if error is not None:
                failures.append(str(error))

        for topic, key, value, timestamp, headers in phase.records:
            partition = 0 if key is None else shard_of(key, scenario.input_partitions)
            extra: list[tuple[str, str | bytes | None]] = list(headers)
            self._producer.produce(setup.topic(topic), value, key, partition, delivered, timestamp=timestamp, headers=extra)
            self._producer.poll(0)
        left = self._producer.flush(TIMEOUT_S)
        if left or failures:
            raise HarnessError(f"{left} records unsent, {len(failures)} failed: {failures[:3]}")

    def _partitions(self, names: Iterable[str]) -> list[Partition]:
        known = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return [(name, partition) for name in names for partition in known[name].partitions]

    def _ends(self, names: Iterable[str], level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> dict[Partition, int]:
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in self._partitions(names)}
        answers = self._admin.list_offsets(asked, isolation_level=level)
        return {(place.topic, place.partition): answer.result(TIMEOUT_S).offset for place, answer in answers.items()}

    def _read(self, names: Sequence[str]) -> Mapping[str, list[Sent]]:
        """All committed records of some topics, by topic; within a partition in order.

        A commit is answered before all partitions have heard of it: they are waited for.
        """
        settled = "transactions to be settled everywhere"
        wait_until(settled, lambda: self._ends(names) == self._ends(names, IsolationLevel.READ_UNCOMMITTED), TIMEOUT_S, 0.02)
        ends = {place: end for place, end in self._ends(names).items() if end}
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
