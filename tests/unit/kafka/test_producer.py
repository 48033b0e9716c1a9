"""Rows become the arguments of `produce`; nothing is sent, because there is no broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer

from penstock.epochs.wire import OUT
from penstock.errors import BrokerError, ConfigError, TopicError
from penstock.kafka.partition_counts import PartitionCounts
from penstock.kafka.producer import RowProducer
from penstock.kafka.statistics import ClientStatistics
from verification.harness.processes import wait_until

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


@pytest.fixture
def producer() -> RowProducer:
    return RowProducer(NOWHERE, ["zero", "one"], 5_000, lambda: clock[0])


clock = [0.0]


def row(value: bytes | None = b"v", **columns: Any) -> dict[str, Any]:
    given = {"kind": 1, "name": 0, "topic": None, "partition": None, "timestamp": 5, "key": b"k", "headers": None}
    return {**given, "value": value, **columns}


def arguments(producer: RowProducer, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    return list(producer._arguments(pa.RecordBatch.from_pylist(list(rows), schema=OUT)))


def test_rows_of_one_topic(producer: RowProducer) -> None:
    assert arguments(producer, row(name=1), row(None, name=1, key=None, partition=3)) == [
        ("one", b"v", b"k", -1, None, None, 5),
        ("one", None, None, 3, None, None, 5),
    ]


def test_rows_of_several_topics(producer: RowProducer) -> None:
    found = arguments(producer, row(name=1), row(), row(name=-1, topic="other"))
    assert [topic for topic, *_ in found] == ["one", "zero", "other"]
    assert [topic for topic, *_ in arguments(producer, row(name=1), row())] == ["one", "zero"]


class Known:
    """A client that knows topics, and notes what it sends and what it was asked."""

    def __init__(self, **partitions: int) -> None:
        self.partitions = partitions
        self.asked: list[str] = []
        self.sent: list[Any] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked.append(topic)
        count = self.partitions.get(topic, 0)
        error = None if count else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=dict.fromkeys(range(count)))})

    def produce(self, *row: Any) -> None:
        self.sent.append((row[0], row[3]))

    def poll(self, wait_s: float) -> None: ...


def knowing(producer: RowProducer, **partitions: int) -> Known:
    client = Known(**partitions)
    producer.client = cast("Producer", client)
    producer._counts = PartitionCounts(client, 0.0, lambda: clock[0])
    return client


def test_the_key_in_a_windowed_key_decides_the_partition(producer: RowProducer) -> None:
    client = knowing(producer, zero=10, chosen=10)
    windowed = [row(key=key + bytes(8), partition=-8) for key in (b"ann", b"ann", b"bob")]
    chosen = row(name=-1, topic="chosen", key=b"ann" + bytes(16), partition=-16)
    others = [row(key=b"ann" + bytes(8)), row(partition=3), row(name=1, partition=None), row(key=None, partition=-8)]
    producer.produce(pa.RecordBatch.from_pylist([*windowed, chosen, *others], schema=OUT))
    of_inner = [("zero", 4), ("zero", 4), ("zero", 8), ("chosen", 4)]
    assert client.sent[:-1] == [*of_inner, ("zero", -1), ("zero", 3), ("one", -1)]
    assert 0 <= client.sent[-1][1] < 10
    assert sorted(client.asked) == ["chosen", "zero"]


def test_partitions_of_a_topic_are_counted_anew_after_a_while(producer: RowProducer) -> None:
    clock[0] = 0.0
    client, of_ann = knowing(producer, zero=1), row(key=b"ann" + bytes(8), partition=-8)
    for now in (0.0, 299.0, 301.0):
        clock[0] = now
        producer.produce(pa.RecordBatch.from_pylist([of_ann], schema=OUT))
        client.partitions["zero"] = 10
    assert client.sent == [("zero", 0), ("zero", 0), ("zero", 4)]
    assert client.asked == ["zero", "zero"]


def test_a_topic_whose_partitions_nobody_knows_is_named(producer: RowProducer) -> None:
    knowing(producer)
    with pytest.raises(TopicError, match="Topic 'zero' \\(how many partitions it has\\)"):
        producer.produce(pa.RecordBatch.from_pylist([row(partition=-8)], schema=OUT))


def test_a_timestamp_of_zero_is_sent_as_one(producer: RowProducer) -> None:
    assert [found[6] for found in arguments(producer, row(timestamp=0), row(timestamp=-1), row(timestamp=9))] == [1, -1, 9]


def test_headers_are_pairs(producer: RowProducer) -> None:
    headers = [{"name": "h", "value": b"1"}, {"name": "h", "value": None}]
    rows = [row(), row(headers=headers), row(), row(headers=[]), row(headers=headers[1:])]
    pairs = [[], [("h", b"1"), ("h", None)], [], [], [("h", None)]]
    assert [found[7] for found in arguments(producer, *rows)] == pairs
    sliced = pa.RecordBatch.from_pylist(rows, schema=OUT).slice(2)
    assert [found[7] for found in producer._arguments(sliced)] == pairs[2:]


def test_no_rows(producer: RowProducer) -> None:
    assert arguments(producer) == []


def test_only_the_first_delivery_failure_is_named(producer: RowProducer) -> None:
    def sent(topic: str) -> Any:
        return SimpleNamespace(topic=lambda: topic)

    assert producer.delivery_failure() is None
    producer._on_delivery(None, sent("fine"))
    assert producer.delivery_failure() is None
    for topic in ("first", "second"):
        producer._on_delivery(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), sent(topic))
    error = producer.delivery_failure()
    assert isinstance(error, TopicError)
    assert str(error).startswith("Topic 'first' (2 record(s) not delivered)")
    producer.begin()
    assert producer.delivery_failure() is None


def test_brokers_unreachable_for_too_long_are_an_error(producer: RowProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock[0] = 100.0
    producer.check()
    producer._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert producer.had_trouble
    monkeypatch.setattr("penstock.kafka.producer._PROBE_S", 0.01)
    clock[0] = 104.0
    producer.check()
    clock[0] = 105.0
    with pytest.raises(BrokerError, match="No broker has been reachable for 5 s"):
        producer.check()
    producer.is_in_reach()
    producer.check()


def test_invalid_client_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value for configuration property .socket.timeout.ms."):
        RowProducer({**NOWHERE, "socket.timeout.ms": "soon"}, [], 5_000)


class Full:
    """A client whose queue is full."""

    def __init__(self, room_after: int) -> None:
        self.room_after = room_after
        self.sent: list[Any] = []

    def produce(self, *row: Any) -> None:
        if self.room_after:
            self.room_after -= 1
            raise BufferError
        self.sent.append(row)

    def poll(self, wait_s: float) -> None: ...


def test_a_full_queue_is_retried(producer: RowProducer) -> None:
    client: Any = Full(3)
    producer.client = client
    producer.produce(pa.RecordBatch.from_pylist([row(), row()], schema=OUT))
    assert len(client.sent) == 2


def test_a_full_queue_is_not_retried_forever_without_a_broker(producer: RowProducer) -> None:
    clock[0] = 100.0
    producer._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    client: Any = Full(10**9)
    producer.client = client
    clock[0] = 106.0
    with pytest.raises(BrokerError, match="cannot send the rows of an epoch"):
        producer.produce(pa.RecordBatch.from_pylist([row()], schema=OUT))


def test_large_rows_are_converted_in_small_chunks(producer: RowProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Full(0)
    producer.client = client
    monkeypatch.setattr("penstock.kafka.producer._CHUNK_BYTES", 10_000)
    chunks: list[int] = []
    arguments = producer._arguments

    def noted(rows: pa.RecordBatch) -> Any:
        chunks.append(rows.num_rows)
        return arguments(rows)

    monkeypatch.setattr(producer, "_arguments", noted)
    producer.produce(pa.RecordBatch.from_pylist([row(bytes(3_000))] * 7, schema=OUT))
    assert chunks == [3, 3, 1]
    assert len(client.sent) == 7


def test_the_client_gives_its_statistics_while_it_is_polled() -> None:
    clients = ClientStatistics()
    producer = RowProducer({**NOWHERE, "statistics.interval.ms": "10"}, [], 5_000, on_statistics=clients.of("producer"))
    producer.client.produce("nowhere", b"value")
    wait_until("statistics", lambda: _is_queued(producer, clients), 10)
    assert clients.reports()["producer"].connections() == {}


def _is_queued(producer: RowProducer, clients: ClientStatistics) -> bool:
    producer.poll()
    return any(report.queued == (1, len(b"value")) for report in clients.reports().values())
