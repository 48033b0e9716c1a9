"""The content of a sink: all its results, and results as they are committed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

from confluent_kafka import Consumer, Message, TopicPartition

from benchmarks.workloads.workload import Result
from verification.harness import topics
from verification.harness.processes import HarnessError

READ_TIMEOUT_S = 600
CHUNK = 10_000


def reader(bootstrap_servers: str, topic: str, *, at_end: bool) -> Consumer:
    """A consumer of the committed records of all partitions of a topic, from its beginning or its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"reader-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
        }
    )
    ends = topics.end_offsets(bootstrap_servers, topic)
    consumer.assign([TopicPartition(topic, partition, end if at_end else 0) for partition, end in ends.items()])
    return consumer


def results(bootstrap_servers: str, topic: str) -> Iterator[Result]:
    """All committed results up to the current end, in the order of each partition."""
    ends = topics.end_offsets(bootstrap_servers, topic)
    consumer = reader(bootstrap_servers, topic, at_end=False)
    asked = [TopicPartition(topic, partition) for partition in ends]
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        while any(at.offset < ends[at.partition] for at in consumer.position(asked)):
            if time.monotonic() > deadline:
                raise HarnessError(f"{topic} was not read within {READ_TIMEOUT_S} s")
            yield from map(_key_and_value, consumer.consume(CHUNK, timeout=0.1))
    finally:
        consumer.close()


def arriving(consumer: Consumer) -> Iterator[Result]:
    """Keys and values as they are committed; stops after a moment without any, and can be called again."""
    while messages := consumer.consume(CHUNK, timeout=0.05):
        yield from map(_key_and_value, messages)


def _key_and_value(message: Message) -> Result:
    key, value = message.key(), message.value()
    if message.error() is not None or key is None or value is None:
        raise HarnessError(f"{message.topic()} has an invalid result: {message.error() or message.offset()}")
    return key, value
