"""The application as a user runs it: on Spark, here or on a cluster, or on the local engine; one broker for all runs."""

from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from confluent_kafka import Consumer, IsolationLevel, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from penstock import App
from penstock.epochs.program import lanes_topic
from penstock.records import Partition
from penstock.runtime.application import RunningApplication
from penstock.spark.context import SparkSession, open_context
from penstock.state import REGISTERS
from penstock.topology import SourceNode
from penstock.topology.bindings import changelog_topic
from verification.harness.broker import NEVER_KILLED, Broker
from verification.harness.patience import ends, insist, is_passing
from verification.harness.processes import HarnessError, wait_until
from verification.harness.spark_cluster import SparkCluster
from verification.harness.topics import ONE_BY_ONE
from verification.integration.contents import contents, restored
from verification.integration.cut import Cut
from verification.integration.inputs import SHARDS, partition_of
from verification.integration.scenario import SINK_PARTITIONS, Fed, Phase, Result, Scenario, Sent, Setup

if TYPE_CHECKING:
    from typing_extensions import Self

TIMEOUT_S = 120
LANES_MAX = 8
CHUNK = 10_000
EVERY_S = 0.05
EVERY_S_ON_CLUSTER = 0.25
"""An epoch takes seconds there, and looking takes from it."""
CORES_OF_HOST = 6
"""Enough for two applications with the most lanes at the same time, and a core to spare."""


class _Run:
    """One application: its id, its topology, its topics."""

    def __init__(self, application_id: str, scenario: Scenario, phases: Sequence[Phase], caching: bool) -> None:
        self.application_id = application_id
        self.scenario = scenario
        self.phases = phases
        self.setup = Setup(caching, f"{application_id}-")
        self.topology = scenario.build(self.setup)
        tables = self.topology.global_stores
        self.logged = [spec for name, spec in self.topology.stores.items() if spec.logged and name not in tables]
        nodes = [node for node in self.topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
        self._sources = [node for node in nodes if node.name not in tables.values()]
        self.partitions = {lanes_topic(application_id): SHARDS}
        self.partitions |= {changelog_topic(application_id, spec.name): SHARDS for spec in self.logged}
        self.partitions |= {self.setup.topic(output.topic): SINK_PARTITIONS for output in scenario.outputs}
        self.partitions |= {self.setup.topic(topic): count for topic, count in scenario.partitions(phases)[0].items()}

    @property
    def sources(self) -> list[str]:
        """The existing topics that it reads."""
        return [topic for topic in self.partitions if any(node.reads(topic) for node in self._sources)]

    def partition_of(self, topic: str, key: bytes | None) -> int:
        """The partition into which a record is fed."""
        return partition_of(key, self.partitions[topic])


Where = Literal["spark", "local", "cluster"]


class ApplicationHost:
    """A broker, and a Spark session unless the engine is local; as a context manager it ends them on exit.

    On Spark, every second start of an application has the local engine: its state is kept. The executors of a cluster have no
    files in common.
    """

    def __init__(self, where: Where) -> None:
        self._engines = {"spark": ("spark", "local"), "local": ("local",), "cluster": ("spark",)}[where]
        self._cluster = SparkCluster(hosts=3, cores=CORES_OF_HOST) if where == "cluster" else None
        self._every_s = EVERY_S if self._cluster is None else EVERY_S_ON_CLUSTER
        self._broker = Broker(settings=NEVER_KILLED)
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            opening.enter_context(self._broker)
            if self._cluster is not None:
                opening.enter_context(self._cluster)
            self._spark = {"master": "local[2]"} if self._cluster is None else self._cluster.settings
            if "spark" in self._engines:
                session = SparkSession(open_context("integration", LANES_MAX, self._spark))
                opening.callback(session.stop)
            self._servers: dict[str, Any] = {"bootstrap.servers": self._broker.bootstrap_servers}
            self._admin = AdminClient(self._servers)
            self._producer = Producer({**self._servers, **ONE_BY_ONE, "linger.ms": 5, "log_level": 4})
            opening.callback(self._disconnect)
            self._open = opening.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def _disconnect(self) -> None:
        """Release the clients before the broker ends."""
        del self._admin, self._producer

    def run(self, scenario: Scenario, phases: Sequence[Phase], caching: bool, cut: Cut, then: Sequence[int] = ()) -> Result:
        """The result of a scenario; `then` are the lanes of later starts, each of which gets its share of the input."""
        run = _Run(f"{scenario.slug}-{next(self._numbers)}", scenario, phases, caching)
        self._create(run)
        shares = _shares(phases, 1 + len(then))
        if not cut.is_uneven:
            self._produce(run, shares[0][0].records)
        epochs = 0
        with tempfile.TemporaryDirectory(prefix="penstock-integration-") as directory:
            for number, (lanes, share) in enumerate(zip((cut.lanes, *then), shares, strict=True)):
                running = self._start(run, directory, lanes, cut, number)
                with running:
                    self._feed(run, running, share, cut, is_first_there=number == 0)
                    epochs = running.epoch + 1
                running.wait()
        self._check_input(run)
        result = self._result(run, epochs)
        self._admin.delete_topics(list(run.partitions))  # a broker with thousands of partitions is slow
        return result

    def _start(self, run: _Run, directory: str, lanes: int, cut: Cut, number: int) -> RunningApplication:
        return App(run.application_id, run.topology).start(
            bootstrap_servers=self._broker.bootstrap_servers,
            state_dir=directory,
            lanes=lanes,
            shards=SHARDS,
            max_epoch_records=cut.epoch_records,
            # Both ways to run an epoch: by one slot if it is small, otherwise by all.
            small_epoch_records=50,
            # Both ways to read: the driver reads for the slots, or they read for themselves.
            large_backlog_records=(0, 50_000)[(number + lanes + cut.epoch_records) % 2],
            engine=self._engines[number % len(self._engines)],
            epoch_interval="10ms",
            admin_address="127.0.0.1:0",
            columns=True,
            spark=self._spark,
        )

    def _feed(self, run: _Run, running: RunningApplication, phases: Sequence[Phase], cut: Cut, is_first_there: bool) -> None:
        """Feed one phase after the other; the very first one is already there, as for an application that starts late.

        For uneven epochs each phase comes in pieces, each of which is read before the next is fed.
        """
        for number, phase in enumerate(phases):
            self._grow(run, phase)
            if cut.is_uneven:
                self._feed_unevenly(run, running, phase, cut)
            elif number or not is_first_there:
                with _paused(running) if phase.at_once else nullcontext():
                    self._produce(run, phase.records)
            self._wait_until_read(run, running)
            if phase.advance_ms:
                _wait_for_epochs(running, running.epoch + 3)

    def _feed_unevenly(self, run: _Run, running: RunningApplication, phase: Phase, cut: Cut) -> None:
        left, sizes = list(phase.records), cut.sizes()
        while left:
            size = next(sizes)
            self._produce(run, left[:size])
            self._wait_until_read(run, running)
            del left[:size]

    def _wait_until_read(self, run: _Run, running: RunningApplication) -> None:
        """Wait until everything in the source topics is committed, including what the application itself has written there.

        It may take any time, as long as there are epochs.
        """
        names = run.sources
        group = Consumer({**self._servers, "group.id": run.application_id})

        def is_read() -> bool:
            if running.wait(0):
                return True
            ends = self._ends(run, names)
            if ends != self._ends(run, names, IsolationLevel.READ_UNCOMMITTED):
                return False
            asked = [TopicPartition(*place) for place in ends]
            committed = insist(lambda: group.committed(asked, timeout=TIMEOUT_S))
            return all(at.offset >= ends[at.topic, at.partition] for at in committed)

        try:
            running.wait_until_running(TIMEOUT_S)
            what = f"{run.application_id} has read {', '.join(names)}"
            wait_until(what, is_read, TIMEOUT_S, self._every_s, progress=lambda: running.epoch)
        finally:
            group.close()

    def _check_input(self, run: _Run) -> None:
        """Check that the application got the same input as the test driver: a producer's retries may change the order."""
        fed: defaultdict[Partition, list[Sent]] = defaultdict(list)
        for phase, partitions in zip(run.phases, run.scenario.partitions(run.phases), strict=True):
            for topic, key, value, timestamp, headers in phase.records:
                partition = partition_of(key, partitions[topic])
                fed[run.setup.topic(topic), partition].append(Sent(key, value, timestamp, headers, partition))
        found = self._read(run, list({topic for topic, _ in fed}))
        for (topic, partition), records in fed.items():
            there = [record for record in found[topic] if record.partition == partition]
            if there != records:
                again = [record for record in self._read(run, [topic])[topic] if record.partition == partition]
                what = f"{_compared(there, records)}; read once more, {_compared(again, records)}"
                end = self._ends(run, [topic])[topic, partition]
                raise HarnessError(f"{topic}-{partition}, which ends at {end}, is not what was fed, in that order: {what}")

    def _result(self, run: _Run, epochs: int) -> Result:
        changelogs = {changelog_topic(run.application_id, spec.name): spec.name for spec in run.logged}
        changelogs[lanes_topic(run.application_id)] = REGISTERS
        outputs = {run.setup.topic(output.topic): output.topic for output in run.scenario.outputs}
        found = self._read(run, [*changelogs, *outputs])
        rows: dict[tuple[str, int], tuple[list[bytes], list[bytes | None]]] = {}
        for topic, store in changelogs.items():
            for record in found[topic]:
                assert record.key is not None
                assert record.partition is not None
                keys, values = rows.setdefault((store, record.partition), ([], []))
                keys.append(record.key)
                values.append(record.value)
        sent = {name: found[topic] for topic, name in outputs.items() if found[topic]}
        return Result(sent, {"changelogs": contents(restored(rows, run.logged), run.logged, range(SHARDS))}, epochs)

    # ---- the broker ---------------------------------------------------------------------------------------------------

    def _create(self, run: _Run) -> None:
        own = {changelog_topic(run.application_id, spec.name) for spec in run.logged} | {lanes_topic(run.application_id)}
        new = {name: count for name, count in run.partitions.items() if name not in own}
        self._settle(self._admin.create_topics([NewTopic(name, count, 1) for name, count in new.items()]), new)

    def _grow(self, run: _Run, phase: Phase) -> None:
        """Create the topics of a phase, or add partitions to them."""
        grown = {run.setup.topic(topic): count for topic, count in phase.grows.items()}
        grown = {topic: count for topic, count in grown.items() if run.partitions.get(topic) != count}
        new = [NewTopic(topic, count, 1) for topic, count in grown.items() if topic not in run.partitions]
        more = [NewPartitions(topic, count) for topic, count in grown.items() if topic in run.partitions]
        run.partitions |= grown
        if new:
            self._settle(self._admin.create_topics(new), grown)
        if more:
            self._settle(self._admin.create_partitions(more), grown)

    def _settle(self, asked: Mapping[str, Future[Any]], partitions: Mapping[str, int]) -> None:
        for future in asked.values():
            future.result(TIMEOUT_S)

        def are_known() -> bool:
            """Whether both clients know them; without this request the producer would take minutes."""
            for client in (self._admin, self._producer):
                known = client.list_topics(timeout=TIMEOUT_S).topics
                if any(topic not in known or len(known[topic].partitions) != partitions[topic] for topic in asked):
                    return False
            return True

        wait_until("topics are known", are_known, TIMEOUT_S, EVERY_S)

    def _produce(self, run: _Run, records: Sequence[Fed]) -> None:
        failures: list[str] = []

        def delivered(error: object, _: Message) -> None:
            if error is not None:
                failures.append(str(error))

        for topic, key, value, timestamp, headers in records:
            name, extra = run.setup.topic(topic), list[tuple[str, str | bytes | None]](headers)
            self._producer.produce(name, value, key, run.partition_of(name, key), delivered, timestamp=timestamp, headers=extra)
            self._producer.poll(0)
        left = self._producer.flush(TIMEOUT_S)
        if left or failures:
            raise HarnessError(f"{left} records unsent, {len(failures)} failed: {failures[:3]}")

    def _ends(
        self, run: _Run, names: Iterable[str], level: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[Partition, int]:
        return ends(self._admin, [(name, partition) for name in names for partition in range(run.partitions[name])], level)

    def _read(self, run: _Run, names: Sequence[str]) -> Mapping[str, list[Sent]]:
        """All committed records of some topics, by topic; within a partition in order.

        A commit returns before all partitions have received it: this waits for them.
        """

        def is_settled() -> bool:
            return self._ends(run, names) == self._ends(run, names, IsolationLevel.READ_UNCOMMITTED)

        wait_until(f"transactions of {run.application_id} are settled", is_settled, TIMEOUT_S, EVERY_S)
        until = {place: end for place, end in self._ends(run, names).items() if end}
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
        asked = [TopicPartition(topic, partition, 0) for topic, partition in until]

        def is_read() -> bool:
            for message in consumer.consume(CHUNK, timeout=0.05):
                if not is_passing(message.error()):  # the consumer recovers by itself
                    found[message.topic() or ""].append(_sent(message))
            positions = consumer.position(asked)
            return all(position.offset >= until[position.topic, position.partition] for position in positions)

        try:
            if asked:
                consumer.assign(asked)
                wait_until(f"{', '.join(names)} read", is_read, TIMEOUT_S, 0)
        finally:
            consumer.close()
        return found


def _shares(phases: Sequence[Phase], count: int) -> Sequence[Sequence[Phase]]:
    """The input of each of `count` starts: even parts of the first phase, or of the last one that makes topics grow.

    Phases that are fed at once are not divided.
    """
    if phases[0].at_once:
        size = -(-len(phases) // count)
        return [phases[start : start + size] for start in range(0, size * count, size)]
    parted = max((number for number, phase in enumerate(phases) if phase.grows), default=0)
    phase = phases[parted]
    size = -(-len(phase.records) // count)
    parts = [replace(phase, records=phase.records[start : start + size]) for start in range(0, size * count, size)]
    starts: list[list[Phase]] = [[replace(part, advance_ms=0)] for part in parts[:-1]] + [[parts[-1]]]
    starts[0][:0] = phases[:parted]
    starts[-1] += phases[parted + 1 :]
    return starts


def _compared(found: Sequence[Sent], fed: Sequence[Sent]) -> str:
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(found, fed, strict=False)))
    missing = [place for place, record in enumerate(fed) if record not in found]
    return f"{len(found)} records instead of {len(fed)}, the first {same} the same, without those at {missing[:10]}"


def _sent(message: Any) -> Sent:
    if message.error() is not None:
        raise HarnessError(f"{message.topic()}: {message.error()}")
    headers = tuple(message.headers() or ())
    return Sent(message.key(), message.value(), message.timestamp()[1], headers, message.partition())


@contextmanager
def _paused(running: RunningApplication) -> Iterator[None]:
    """Let it rest meanwhile."""
    running.wait_until_running(TIMEOUT_S)
    running.pause()
    if not running.wait_until_paused(TIMEOUT_S):
        raise HarnessError(f"{running} was not paused within {TIMEOUT_S} s")
    yield
    running.resume()


def _wait_for_epochs(running: RunningApplication, epoch: int) -> None:
    """Wait until the clock has caused epochs."""
    wait_until("epochs by the clock", lambda: running.epoch >= epoch, TIMEOUT_S, EVERY_S)
