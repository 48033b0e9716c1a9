"""What clients of Kafka do, as far as Penstock relies on it: tests for a real broker, and for the simulated one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from penstock import machine
from penstock.kafka.opening import Clients

PATIENCE_S = 20.0
EOF = KafkaError._PARTITION_EOF
Place = tuple[str, int]
Record = tuple[bytes | None, bytes | None]


class Side:
    """A Kafka, real or not: `clients` open clients of it with `settings`."""

    def __init__(self, clients: Clients, settings: Mapping[str, str]) -> None:
        self.clients = clients
        self.settings = dict(settings)
        self.admin = clients.admin(self.settings)

    def topic(self, partitions: int = 1, **config: str) -> str:
        """Create a topic of a name that nothing else has."""
        name = f"contract-{uuid4().hex[:8]}"
        self.create(name, partitions, **config)
        return name

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()
        self.wait_until(lambda: self.exists(name))

    def exists(self, name: str) -> bool:
        known = self.admin.list_topics(timeout=PATIENCE_S).topics
        return name in known and known[name].error is None and bool(known[name].partitions)

    def producer(self, transactional_id: str | None = None, **more: Any) -> Any:
        own = {} if transactional_id is None else {"transactional.id": transactional_id}
        return self.clients.producer({**self.settings, "linger.ms": "5", **own, **more})

    def begun(self, transactional_id: str, **more: Any) -> Any:
        """Return a producer that has initialized its transactions, and begun one."""
        producer = self.producer(transactional_id, **more)
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        return producer

    def consumer(self, group: str = "contract", *, is_committed: bool = True) -> Any:
        level = "read_committed" if is_committed else "read_uncommitted"
        own = {"group.id": group, "isolation.level": level, "enable.partition.eof": "true", "auto.offset.reset": "error"}
        return self.clients.consumer({**self.settings, **own, "enable.auto.commit": "false"})

    def read(self, place: Place, begin: int = 0, *, is_committed: bool = True) -> tuple[list[Message], int]:
        """Read a partition to its end; return the records, and the end."""
        consumer = self.consumer(is_committed=is_committed)
        consumer.assign([TopicPartition(*place, begin)])
        found: list[Message] = []
        try:
            while True:
                for message in consumer.consume(100, 1.0):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == EOF:
                        return found, int(message.offset() or 0)
                    else:
                        raise KafkaException(error)
        finally:
            consumer.close()

    def records(self, place: Place, *, is_committed: bool = True) -> list[Record]:
        return [(message.key(), message.value()) for message in self.read(place, is_committed=is_committed)[0]]

    def offset(self, place: Place, where: OffsetSpec, level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> int:
        wanted = TopicPartition(*place)
        return int(self.admin.list_offsets({wanted: where}, isolation_level=level)[wanted].result().offset)

    def end(self, place: Place, level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> int:
        return self.offset(place, OffsetSpec.latest(), level)

    def committed(self, group: str, places: Sequence[Place]) -> list[tuple[int, str]]:
        consumer = self.consumer(group)
        try:
            found = consumer.committed([TopicPartition(*place) for place in places], timeout=PATIENCE_S)
        finally:
            consumer.close()
        return [(each.offset, each.metadata or "") for each in found]

    @staticmethod
    def wait_until(found: Callable[[], bool]) -> None:
        deadline = machine.monotonic() + PATIENCE_S
        while not found():
            assert machine.monotonic() < deadline, "not in time"
            machine.sleep(0.05)


def code_of(raised: Any) -> int:
    error: KafkaError = raised.value.args[0]
    return error.code()


UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class Contract:
    """The tests; a subclass has the fixture `side`."""

    def test_records_are_read_in_order_up_to_the_end(self, side: Side) -> None:
        topic, producer = side.topic(), side.producer()
        for number in range(3):
            producer.produce(topic, b"v%d" % number, b"k", 0, None, None, 1_000 + number, [("h", b"1"), ("n", None)])
        producer.flush(PATIENCE_S)
        found, end = side.read((topic, 0))
        assert [(each.offset(), each.key(), each.value()) for each in found] == [(n, b"k", b"v%d" % n) for n in range(3)]
        assert found[0].timestamp() == (1, 1_000)
        assert found[0].headers() == [("h", b"1"), ("n", None)]
        assert end == 3

    def test_reading_begins_where_it_is_asked_to(self, side: Side) -> None:
        topic, producer = side.topic(), side.producer()
        for value in (b"0", b"1", b"2"):
            producer.produce(topic, value, None, 0)
        producer.flush(PATIENCE_S)
        assert [each.value() for each in side.read((topic, 0), 2)[0]] == [b"2"]

    def test_an_offset_that_is_not_there_is_an_error(self, side: Side) -> None:
        topic = side.topic()
        with pytest.raises(KafkaException) as raised:
            side.read((topic, 0), 7)
        assert code_of(raised) == KafkaError._AUTO_OFFSET_RESET

    def test_a_key_decides_about_the_partition(self, side: Side) -> None:
        topic, producer = side.topic(5), side.producer(partitioner="murmur2_random")
        for key in (b"a", b"bb", b"ccc", b"dddd"):
            producer.produce(topic, b"v", key)
        producer.flush(PATIENCE_S)
        found = {key: number for number in range(5) for key, _ in side.records((topic, number))}
        assert found == {b"a": 4, b"bb": 2, b"ccc": 2, b"dddd": 4}

    def test_a_transaction_is_visible_when_it_is_committed(self, side: Side) -> None:
        topic, name = side.topic(), f"id-{uuid4().hex}"
        producer = side.begun(name)
        producer.produce(topic, b"v", b"k", 0)
        producer.flush(PATIENCE_S)
        assert (side.end((topic, 0)), side.end((topic, 0), UNCOMMITTED)) == (0, 1)
        assert side.records((topic, 0)) == []
        assert side.records((topic, 0), is_committed=False) == [(b"k", b"v")]
        producer.commit_transaction(PATIENCE_S)
        side.wait_until(lambda: side.end((topic, 0)) == 2)  # the mark has an offset, too
        assert side.records((topic, 0)) == [(b"k", b"v")]
        assert side.read((topic, 0))[1] == 2

    def test_one_that_is_aborted_never_is(self, side: Side) -> None:
        topic, producer = side.topic(), side.begun(f"id-{uuid4().hex}")
        producer.produce(topic, b"v", b"k", 0)
        producer.flush(PATIENCE_S)
        producer.abort_transaction(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, b"w", b"k", 0)
        producer.commit_transaction(PATIENCE_S)
        side.wait_until(lambda: side.end((topic, 0)) == 4)
        assert side.records((topic, 0)) == [(b"k", b"w")]

    def test_what_follows_an_open_transaction_waits_for_it(self, side: Side) -> None:
        topic, producer, other = side.topic(), side.begun(f"id-{uuid4().hex}"), side.producer()
        producer.produce(topic, b"open", None, 0)
        producer.flush(PATIENCE_S)
        other.produce(topic, b"behind", None, 0)
        other.flush(PATIENCE_S)
        assert side.records((topic, 0)) == []
        producer.abort_transaction(PATIENCE_S)
        side.wait_until(lambda: side.records((topic, 0)) == [(None, b"behind")])

    def test_a_newer_producer_fences_the_older_one_and_aborts_what_it_has_begun(self, side: Side) -> None:
        topic, name = side.topic(), f"id-{uuid4().hex}"
        older = side.begun(name)
        older.produce(topic, b"older", None, 0)
        older.flush(PATIENCE_S)
        newer = side.begun(name)
        newer.produce(topic, b"newer", None, 0)
        newer.commit_transaction(PATIENCE_S)
        with pytest.raises(KafkaException) as raised:
            older.commit_transaction(PATIENCE_S)
        assert code_of(raised) in FENCED
        side.wait_until(lambda: side.records((topic, 0)) == [(None, b"newer")])

    def test_a_transaction_that_is_open_for_too_long_is_aborted(self, side: Side) -> None:
        topic, producer = side.topic(), side.begun(f"id-{uuid4().hex}", **{"transaction.timeout.ms": "1000"})
        producer.produce(topic, b"late", None, 0)
        producer.flush(PATIENCE_S)
        side.wait_until(lambda: side.end((topic, 0)) == 2)
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(PATIENCE_S)
        assert code_of(raised) in FENCED
        assert side.records((topic, 0)) == []

    def test_a_timeout_above_that_of_the_brokers_is_refused(self, side: Side) -> None:
        producer = side.producer(f"id-{uuid4().hex}", **{"transaction.timeout.ms": "2000000"})
        with pytest.raises(KafkaException) as raised:
            producer.init_transactions(PATIENCE_S)
        assert code_of(raised) == KafkaError.INVALID_TRANSACTION_TIMEOUT

    def test_offsets_are_committed_with_the_transaction(self, side: Side) -> None:
        topic, group = side.topic(2), f"group-{uuid4().hex}"
        consumer, places = side.consumer(group), [(topic, 0), (topic, 1)]
        about = consumer.consumer_group_metadata()
        consumer.close()
        assert [offset for offset, _ in side.committed(group, places)] == [-1001, -1001]
        producer = side.begun(f"id-{uuid4().hex}")
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 5, metadata="five")], about, PATIENCE_S)
        with pytest.raises(KafkaException):
            side.clients.consumer({**self._of_group(side, group)}).committed([TopicPartition(topic, 0)], timeout=1.0)
        producer.commit_transaction(PATIENCE_S)
        side.wait_until(lambda: side.committed(group, [(topic, 0)]) == [(5, "five")])
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 9, metadata="nine")], about, PATIENCE_S)
        producer.abort_transaction(PATIENCE_S)
        side.wait_until(lambda: side.committed(group, [(topic, 0)]) == [(5, "five")])

    @staticmethod
    def _of_group(side: Side, group: str) -> dict[str, str]:
        return {**side.settings, "group.id": group, "isolation.level": "read_committed"}

    def test_offsets_without_a_transaction(self, side: Side) -> None:
        topic, group = side.topic(), f"group-{uuid4().hex}"
        consumer = side.consumer(group)
        consumer.commit(offsets=[TopicPartition(topic, 0, 3, metadata="three")], asynchronous=False)
        consumer.close()
        assert side.committed(group, [(topic, 0)]) == [(3, "three")]

    def test_a_record_that_is_too_large_fails_its_transaction(self, side: Side) -> None:
        topic, failed = side.topic(max_message_bytes="1000"), list[KafkaError]()
        producer = side.begun(f"id-{uuid4().hex}", on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.produce(topic, bytes(5_000), None, 0)
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(PATIENCE_S)
        error: KafkaError = raised.value.args[0]
        assert error.txn_requires_abort()
        producer.abort_transaction(PATIENCE_S)
        producer.poll(1.0)
        assert [each.code() for each in failed] == [KafkaError.MSG_SIZE_TOO_LARGE]
        assert side.records((topic, 0)) == []

    def test_topics_have_ids_partitions_and_settings(self, side: Side) -> None:
        topic = side.topic(3, cleanup_policy="compact", max_message_bytes="5000")
        described = side.admin.describe_topics(TopicCollection([topic]))[topic].result()
        assert len(described.partitions) == 3
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = side.admin.describe_configs([resource])[resource].result()
        found = {name: entries[name].value for name in ("cleanup.policy", "max.message.bytes", "delete.retention.ms")}
        assert found == {"cleanup.policy": "compact", "max.message.bytes": "5000", "delete.retention.ms": "86400000"}
        side.admin.delete_topics([topic])[topic].result()
        side.wait_until(lambda: not side.exists(topic))
        side.create(topic)
        again = side.admin.describe_topics(TopicCollection([topic]))[topic].result()
        assert str(again.topic_id) != str(described.topic_id)

    def test_a_topic_that_does_not_exist_says_so(self, side: Side) -> None:
        with pytest.raises(KafkaException) as raised:
            side.admin.describe_topics(TopicCollection(["nowhere"]))["nowhere"].result()
        assert code_of(raised) == KafkaError.UNKNOWN_TOPIC_OR_PART
        topic = side.topic()
        with pytest.raises(KafkaException) as raised:
            side.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        assert code_of(raised) == KafkaError.TOPIC_ALREADY_EXISTS

    def test_offsets_are_found_by_time(self, side: Side) -> None:
        topic, producer = side.topic(), side.producer()
        for timestamp in (1_000, 2_000, 3_000):
            producer.produce(topic, b"v", None, 0, None, None, timestamp)
        producer.flush(PATIENCE_S)
        found = [side.offset((topic, 0), OffsetSpec.for_timestamp(at)) for at in (1, 2_000, 2_001, 3_001)]
        assert found == [0, 1, 2, -1]
        assert side.offset((topic, 0), OffsetSpec.earliest()) == 0

    def test_partitions_can_be_paused_and_read_again_from_elsewhere(self, side: Side) -> None:
        topic, producer, consumer = side.topic(2), side.producer(), side.consumer()
        for number in (0, 1):
            producer.produce(topic, b"%d" % number, None, number)
        producer.flush(PATIENCE_S)
        consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
        consumer.pause([TopicPartition(topic, 1)])
        seen: list[bytes | None] = []

        def read() -> list[bytes | None]:
            seen.extend(each.value() for each in consumer.consume(10, 0.3) if each.error() is None)
            return seen

        side.wait_until(lambda: read() == [b"0"])
        consumer.resume([TopicPartition(topic, 1)])
        side.wait_until(lambda: read() == [b"0", b"1"])
        consumer.seek(TopicPartition(topic, 0, 0))
        side.wait_until(lambda: read() == [b"0", b"1", b"0"])
        consumer.close()

    def test_a_group_without_members_has_none(self, side: Side) -> None:
        group = f"group-{uuid4().hex}"
        assert side.admin.describe_consumer_groups([group])[group].result().members == []
