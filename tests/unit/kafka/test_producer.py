"""Rows become the arguments of `produce`; nothing is sent, because there is no broker."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer

from penstock.epochs.wire import OUT
from penstock.errors import BrokerError, ConfigError, TopicError
from penstock.kafka.partition_counts import PartitionCounts
from penstock.kafka.producer import RowProducer, _arguments
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


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=OUT)


def arguments(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    return list(_arguments(batch(*rows), ["zero", "one"]))


def test_rows_of_one_topic() -> None:
    assert arguments(row(name=1, partition=0), row(None, name=1, key=None, partition=3)) == [
        ("one", b"v", b"k", 0, None, None, 5),
        ("one", None, None, 3, None, None, 5),
    ]


def test_rows_of_several_topics(producer: RowProducer) -> None:
    assert [topic for topic, *_ in arguments(row(name=1), row())] == ["one", "zero"]
    client = knowing(producer, zero=1, one=1, other=1)
    producer.produce(batch(row(name=1), row(), row(name=-1, topic="other")))
    assert client.sent == [("one", 0), ("zero", 0), ("other", 0)]


class Known:
    """A client that knows topics, and notes what it sends and what it was asked. `on_flush` returns how many are left."""

    def __init__(self, **partitions: int) -> None:
        self.partitions = partitions
        self.asked: list[str] = []
        self.sent: list[Any] = []
        self.flushed: list[int] = []
        self.on_flush: Callable[[], int] = lambda: 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked.append(topic)
        count = self.partitions.get(topic, 0)
        error = None if count else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=dict.fromkeys(range(count)))})

    def produce(self, *row: Any) -> None:
        self.sent.append((row[0], row[3]))

    def poll(self, wait_s: float) -> None: ...

    def flush(self, wait_s: float) -> int:
        self.flushed.append(len(self.sent))
        return self.on_flush()


def knowing(producer: RowProducer, **partitions: int) -> Known:
    client = Known(**partitions)
    producer.client = cast("Producer", client)
    producer._counts = PartitionCounts(client, 0.0, lambda: clock[0])
    return client


def test_the_key_decides_the_partition_or_the_key_in_a_windowed_key(producer: RowProducer) -> None:
    client = knowing(producer, zero=10, one=3, chosen=10)
    windowed = [row(key=key + bytes(8), partition=-8) for key in (b"ann", b"bob")]
    chosen = row(name=-1, topic="chosen", key=b"ann" + bytes(16), partition=-16)
    producer.produce(batch(*windowed, chosen, row(key=b"ann"), row(partition=3), row(name=1, key=b"foobar")))
    assert client.sent == [("zero", 4), ("zero", 8), ("chosen", 4), ("zero", 3), ("one", 0), ("zero", 4)]
    assert sorted(client.asked) == ["chosen", "one", "zero"]


def test_rows_without_a_key_take_turns(producer: RowProducer) -> None:
    client = knowing(producer, zero=3)
    for _ in range(4):
        producer.produce(batch(row(key=None)))
    producer.produce(batch(row(key=None), row(key=None, partition=-8)))
    assert client.sent == [("zero", partition) for partition in (0, 1, 2, 0, 1, 2)]


def test_the_first_row_of_each_partition_is_delivered_before_another_is_sent(producer: RowProducer) -> None:
    clock[0] = 0.0
    client = knowing(producer, zero=10)
    producer.produce(batch(*(row(partition=partition) for partition in (2, 1, 2, 2, 1))))
    assert (client.sent, client.flushed) == ([("zero", partition) for partition in (2, 1, 2, 2, 1)], [2])
    producer.produce(batch(row(partition=1), row(partition=3), row(name=1, partition=1), row(partition=2)))
    assert client.sent[5:] == [("zero", 3), ("one", 1), ("zero", 1), ("zero", 2)]
    assert client.flushed == [2, 7]
    for now in (3_599.0, 7_198.0):  # still known, because it was written to
        clock[0] = now
        producer.produce(batch(row(partition=1)))
    assert client.flushed == [2, 7]
    producer.produce(batch(row(partition=1), row(partition=2)))
    assert client.flushed == [2, 7, 12]
    assert client.sent[-2:] == [("zero", 2), ("zero", 1)]


def test_a_first_row_that_is_not_delivered_is_still_the_first(producer: RowProducer) -> None:
    client = knowing(producer, zero=10)

    def fails() -> int:
        producer._on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT), cast("Any", SimpleNamespace(topic=lambda: "zero")))
        return 1

    client.on_flush = fails
    producer.produce(batch(row(partition=1), row(partition=1)))
    assert (len(client.sent), client.flushed) == (2, [1])
    producer.begin()
    client.on_flush = lambda: 0
    producer.produce(batch(row(partition=1), row(partition=1)))
    assert client.flushed == [1, 3]


def test_the_delivery_of_first_rows_is_not_awaited_forever_without_a_broker(producer: RowProducer) -> None:
    client = knowing(producer, zero=1)
    clock[0] = 100.0
    producer._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    def waits() -> int:
        clock[0] += 1.0
        return 1

    client.on_flush = waits
    with pytest.raises(BrokerError, match="cannot send the rows of an epoch"):
        producer.produce(batch(row(partition=0)))
    assert len(client.flushed) == 5


def test_partitions_of_a_topic_are_counted_anew_after_a_while(producer: RowProducer) -> None:
    clock[0] = 0.0
    client, of_ann = knowing(producer, zero=1), row(key=b"ann" + bytes(8), partition=-8)
    for now in (0.0, 299.0, 301.0):
        clock[0] = now
        producer.produce(batch(of_ann))
        client.partitions["zero"] = 10
    assert client.sent == [("zero", 0), ("zero", 0), ("zero", 4)]
    assert client.asked == ["zero", "zero"]


def test_a_topic_whose_partitions_nobody_knows_is_named(producer: RowProducer) -> None:
    knowing(producer)
    with pytest.raises(TopicError, match="Topic 'zero' \\(how many partitions it has\\)"):
        producer.produce(batch(row(partition=-8)))


def test_a_timestamp_of_zero_is_sent_as_one() -> None:
    assert [found[6] for found in arguments(row(timestamp=0), row(timestamp=-1), row(timestamp=9))] == [1, -1, 9]


def test_headers_are_pairs() -> None:
    headers = [{"name": "h", "value": b"1"}, {"name": "h", "value": None}]
    rows = [row(), row(headers=headers), row(), row(headers=[]), row(headers=headers[1:])]
    pairs = [[], [("h", b"1"), ("h", None)], [], [], [("h", None)]]
    assert [found[7] for found in arguments(*rows)] == pairs
    assert [found[7] for found in _arguments(batch(*rows).slice(2), ["zero"])] == pairs[2:]


def test_no_rows(producer: RowProducer) -> None:
    client = knowing(producer)
    producer.produce(batch())
    assert (client.sent, client.flushed) == ([], [])


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


class Full(Known):
    """A client whose queue is full."""

    def __init__(self, room_after: int) -> None:
        super().__init__()
        self.room_after = room_after

    def produce(self, *row: Any) -> None:
        if self.room_after:
            self.room_after -= 1
            raise BufferError
        super().produce(*row)


def test_a_full_queue_is_retried(producer: RowProducer) -> None:
    client: Any = Full(3)
    producer.client = client
    producer.produce(batch(row(partition=0), row(partition=0)))
    assert len(client.sent) == 2


def test_a_full_queue_is_not_retried_forever_without_a_broker(producer: RowProducer) -> None:
    clock[0] = 100.0
    producer._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    client: Any = Full(10**9)
    producer.client = client
    clock[0] = 106.0
    with pytest.raises(BrokerError, match="cannot send the rows of an epoch"):
        producer.produce(batch(row(partition=0)))


def test_large_rows_are_converted_in_small_chunks(producer: RowProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Full(0)
    producer.client = client
    monkeypatch.setattr("penstock.kafka.producer._CHUNK_BYTES", 10_000)
    chunks: list[int] = []

    def noted(rows: pa.RecordBatch, topics: list[str]) -> Any:
        chunks.append(rows.num_rows)
        return _arguments(rows, topics)

    monkeypatch.setattr("penstock.kafka.producer._arguments", noted)
    producer.produce(batch(*[row(bytes(3_000), partition=0)] * 8))
    assert chunks == [1, 3, 3, 1]
    assert len(client.sent) == 8


def test_the_client_gives_its_statistics_while_it_is_polled() -> None:
    clients = ClientStatistics()
    producer = RowProducer({**NOWHERE, "statistics.interval.ms": "10"}, [], 5_000, on_statistics=clients.of("producer"))
    producer.client.produce("nowhere", b"value")
    wait_until("statistics", lambda: _is_queued(producer, clients), 10)
    assert clients.reports()["producer"].connections() == {}


def _is_queued(producer: RowProducer, clients: ClientStatistics) -> bool:
    producer.poll()
    return any(report.queued == (1, len(b"value")) for report in clients.reports().values())
