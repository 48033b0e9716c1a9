"""A topic of one partition is one task, as in Kafka Streams: by default, the application gives the results of the test driver."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from penstock import (
    App,
    KStream,
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    Topology,
    Windowed,
    key_value_store,
    tumbling,
    until_window_closes,
)
from penstock.epochs.program import lanes_topic
from penstock.testing import TopologyTestDriver
from tests.jvm.runtime.cases import settings_of_a_case
from verification.harness import topics
from verification.harness.broker import Broker

pytestmark = pytest.mark.jvm

BEGIN = 1_000_000_000_000
Piped = tuple[str, str, int]


class Leader(Processor[str, str, str, str]):
    """Looks at all players for each score."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.scores = context.store("scores")

    def process(self, record: Record[str, str]) -> None:
        self.scores.put(record.key, int(record.value))
        players = list(self.scores.all())
        best, _ = max(players, key=lambda player: (player[1], player[0]))
        self.context.forward(record.with_value(f"{best} leads {len(players)} players"))


def leaders(stream: KStream[str, str], builder: StreamsBuilder, out: str) -> None:
    builder.add_state_store(key_value_store("scores", key=str, value=int))
    stream.process(Leader, stores=["scores"], key=str, value=str).to(out, key=str, value=str)


def windows(stream: KStream[str, str], builder: StreamsBuilder, out: str) -> None:
    counts = stream.group_by_key().windowed_by(tumbling("10s")).count()
    by_window = counts.suppress(until_window_closes()).to_stream(_place)
    by_window.map_values(str).to(out, key=str, value=str)


def _place(at: Windowed[str], count: int) -> str:
    return f"{at.key}@{at.start - BEGIN}"


CASES: dict[str, tuple[Any, list[Piped]]] = {
    "a record of another key closes windows, and decides what is late": (
        windows,
        [("ann", "x", 0), ("bob", "x", 100_000), ("ann", "x", 5_000), ("cem", "x", 200_000), ("dia", "x", 300_000)],
    ),
    "a processor sees all keys of its topic": (
        leaders,
        [("ann", "5", 0), ("bob", "9", 0), ("cem", "7", 0), ("dia", "1", 0), ("eve", "8", 0)],
    ),
}


class Case:
    """An application with default lanes and shards; its topics have one partition each."""

    def __init__(self, broker: Broker, directory: Path, name: str) -> None:
        self.servers, self.directory = broker.bootstrap_servers, directory
        self.declare, self.records = CASES[name]
        self.id = f"narrow-{uuid4().hex[:8]}"
        self.source, self.sink = f"{self.id}-in", f"{self.id}-out"
        for topic in (self.source, self.sink):
            topics.create(self.servers, topic)

    def topology(self) -> Topology:
        builder = StreamsBuilder(key=str, value=str)
        self.declare(builder.stream(self.source), builder, self.sink)
        return builder.build()

    def of_the_driver(self) -> list[tuple[str, str]]:
        with TopologyTestDriver(self.topology()) as driver:
            for key, value, at in self.records:
                driver.input(self.source).pipe(value, key=key, timestamp=BEGIN + at)
            return driver.output(self.sink).pairs()

    def send(self, records: Iterable[Piped]) -> None:
        sent = [
            topics.Sent(key=key.encode(), value=value.encode(), timestamp=BEGIN + at, partition=0) for key, value, at in records
        ]
        topics.produce(self.servers, self.source, sent)

    def run(self, **settings: Any) -> None:
        own = settings_of_a_case(self.servers, self.directory)
        own = {name: value for name, value in own.items() if name not in {"lanes", "shards"}}
        with App(self.id, self.topology()).start(until="latest", **{**own, **settings}) as running:
            assert running.wait(120)

    def of_the_application(self) -> list[tuple[str, str]]:
        return [((row.key or b"").decode(), (row.value or b"").decode()) for row in topics.read(self.servers, self.sink)]

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers})

    @property
    def shards(self) -> int:
        name = lanes_topic(self.id)
        return len(self.admin.list_topics(name).topics[name].partitions)


@pytest.mark.parametrize("name", CASES)
def test_the_application_gives_the_results_of_the_test_driver(broker: Broker, tmp_path: Path, name: str) -> None:
    case = Case(broker, tmp_path, name)
    case.send(case.records)
    case.run()
    expected = case.of_the_driver()
    assert len(expected) >= 3
    assert case.of_the_application() == expected


def test_the_number_of_shards_is_that_of_the_first_start(broker: Broker, tmp_path: Path) -> None:
    case = Case(broker, tmp_path, "a processor sees all keys of its topic")
    case.send(case.records[:2])
    case.run(lanes=2)
    admin = case.admin
    admin.create_partitions([NewPartitions(case.source, 4)])[case.source].result(60)
    case.send(case.records[2:])
    case.run()
    assert case.shards == 1
    assert case.of_the_application() == case.of_the_driver()
