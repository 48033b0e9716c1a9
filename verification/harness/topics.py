"""Access to a running Kafka for tests: topics, records in and out, a group's offsets, transactions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from verification.harness.patience import TIMEOUT_S, ends, insist, is_passing
from verification.harness.processes import HarnessError, run_java, wait_until

CHUNK = 10_000
SETTLED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})

ONE_BY_ONE: dict[str, Any] = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
"""Settings of producers that lose nothing in new partitions: why others may is said in `penstock.kafka.first_writes`."""

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record to write. By default Kafka's partitioner chooses by the key, and the timestamp is now."""

    value: bytes | None
    key: bytes | None = None
    partition: int = -1
    timestamp: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A record as stored in its topic."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def create(bootstrap_servers: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Create a topic with the brokers' default replication, and wait until every partition has a leader."""
    admin = _admin(bootstrap_servers)
    new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(config or {}))
    admin.create_topics([new])[name].result(TIMEOUT_S)
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        found = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
        if len(found) == partitions and all(partition.leader >= 0 for partition in found.values()):
            return
        time.sleep(0.05)
    raise HarnessError(f"topic {name} has no leaders after {TIMEOUT_S} s")


def delete(bootstrap_servers: str, name: str) -> None:
    """Delete a topic, and wait until it is gone."""
    admin = _admin(bootstrap_servers)
    admin.delete_topics([name])[name].result(TIMEOUT_S)
    end = time.monotonic() + TIMEOUT_S
    while name in admin.list_topics(timeout=TIMEOUT_S).topics:
        if time.monotonic() > end:
            raise HarnessError(f"topic {name} still exists after {TIMEOUT_S} s")
        time.sleep(0.05)


def produce(bootstrap_servers: str, topic: str, records: Iterable[Sent]) -> None:
    """Write the records in order and wait until Kafka has all of them."""
    failures: list[str] = []

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap_servers, **ONE_BY_ONE, "linger.ms": 5, "partitioner": "murmur2_random"})
    for record in records:
        headers: list[tuple[str, str | bytes | None]] = list(record.headers)
        while True:
            try:
                producer.produce(
                    topic, record.value, record.key, record.partition, delivered, timestamp=record.timestamp, headers=headers
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    if left or failures:
        raise HarnessError(f"{left} records for {topic} unsent after {TIMEOUT_S} s, {len(failures)} failed: {failures[:3]}")


def end_offsets(bootstrap_servers: str, topic: str, *, committed: bool = True) -> dict[int, int]:
    """The end of every partition for a reader of committed records (the last stable offset), or the high watermark."""
    admin = _admin(bootstrap_servers)
    partitions = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    return {partition: end for (_, partition), end in ends(admin, [(topic, number) for number in partitions], level).items()}


def wait_until_settled(bootstrap_servers: str, topic: str) -> None:
    """Wait until the markers of all commits are written in a topic: a commit returns before that.

    A single broker that is killed in between may never write them (Kafka 4.3.1, with any client): the transaction then
    counts as complete but stays open in the partitions. So a test calls this before it kills a broker.
    """

    def is_settled() -> bool:
        try:
            return end_offsets(bootstrap_servers, topic) == end_offsets(bootstrap_servers, topic, committed=False)
        except KafkaException:  # a broker that was down has no leaders for a moment
            return False

    wait_until(f"no transaction is open in {topic}", is_settled, TIMEOUT_S)


def read(bootstrap_servers: str, topic: str, *, committed: bool = True) -> list[Received]:
    """All records of a topic up to its current end, by partition and offset; by default only committed ones.

    It reads until the position in each partition has reached the end: transaction markers take offsets too, so
    the last record may lie before it.
    """
    until = {partition: end for partition, end in end_offsets(bootstrap_servers, topic, committed=committed).items() if end > 0}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "harness",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in until])
        return _consume(consumer, topic, until)
    finally:
        consumer.close()


def _consume(consumer: Consumer, topic: str, until: Mapping[int, int]) -> list[Received]:
    found: list[Received] = []
    asked = [TopicPartition(topic, partition) for partition in until]
    deadline = time.monotonic() + TIMEOUT_S
    while any(at.offset < until[at.partition] for at in consumer.position(asked)):
        messages = consumer.consume(CHUNK, timeout=0.1)
        if messages:
            deadline = time.monotonic() + TIMEOUT_S
        elif time.monotonic() > deadline:
            raise HarnessError(f"{topic}: no records for {TIMEOUT_S} s at {consumer.position(asked)}, ends are {dict(until)}")
        for message in messages:
            error = message.error()
            if error is None:
                found.append(_received(message))
            elif not is_passing(error):  # the consumer recovers from the others by itself
                raise HarnessError(f"{topic}: {error}")
    before_end = (record for record in found if record.offset < until[record.partition])
    return sorted(before_end, key=lambda record: (record.partition, record.offset))


def _received(message: Any) -> Received:
    return Received(
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )


def names(bootstrap_servers: str) -> set[str]:
    """All topics."""
    return set(_admin(bootstrap_servers).list_topics(timeout=TIMEOUT_S).topics)


def group_offsets(bootstrap_servers: str, group: str) -> dict[Partition, tuple[int, str]]:
    """The committed offset and its metadata, for every partition where the group has one.

    Uses a consumer: librdkafka's admin client crashes the process if the coordinator returns an error.
    """
    known = _admin(bootstrap_servers).list_topics(timeout=TIMEOUT_S).topics
    every = [TopicPartition(name, number) for name, topic in known.items() for number in topic.partitions]
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "isolation.level": "read_committed"})
    try:
        found = insist(lambda: consumer.committed(every, timeout=TIMEOUT_S))
    finally:
        consumer.close()
    return {(at.topic, at.partition): (at.offset, at.metadata or "") for at in found if at.offset >= 0}


def describe_group(bootstrap_servers: str, group: str) -> str:
    """The output of Kafka's own command-line tool for a group, as a user would see it."""
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    return run_java(command, "--bootstrap-server", bootstrap_servers, "--describe", "--group", group)


def transactions(bootstrap_servers: str) -> dict[str, str]:
    """The state of every transactional id that the brokers know."""
    table = run_java("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", bootstrap_servers, "list").splitlines()
    rows = (line.split() for line in table[1:] if line.strip())  # TransactionalId Coordinator ProducerId TransactionState
    return {row[0]: row[3] for row in rows}


def open_transactions(bootstrap_servers: str) -> set[str]:
    """The transactional ids whose transaction is neither committed nor aborted."""
    return {transactional_id for transactional_id, state in transactions(bootstrap_servers).items() if state not in SETTLED}


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})
