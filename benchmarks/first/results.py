"""The content of a sink: the last value of every key, and results as they are committed."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator

from confluent_kafka import Consumer, Message, TopicPartition

from benchmarks.first.workload import Totals
from verification.harness import topics
from verification.harness.processes import HarnessError

READ_TIMEOUT_S = 60
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


def last_values(bootstrap_servers: str, topic: str) -> tuple[Totals, int]:
    """The last value of every key, and the number of records."""
    ends = topics.end_offsets(bootstrap_servers, topic)
    consumer = reader(bootstrap_servers, topic, at_end=False)
    asked = [TopicPartition(topic, partition) for partition in ends]
    last: dict[bytes, bytes] = {}
    count = 0
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        while any(at.offset < ends[at.partition] for at in consumer.position(asked)):
            if time.monotonic() > deadline:
                raise HarnessError(f"{topic} was not read within {READ_TIMEOUT_S} s")
            messages = consumer.consume(CHUNK, timeout=0.1)
            last.update(map(_key_and_value, messages))
            count += len(messages)
    finally:
        consumer.close()
    return {key.decode(): json.loads(value) for key, value in last.items()}, count


def check(bootstrap_servers: str, topic: str, expected: Totals) -> int:
    """Check that every record was counted once: a wrong result invalidates the run. Return the number of results."""
    found, count = last_values(bootstrap_servers, topic)
    if found != expected:
        wrong = [key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)]
        sample = {key: (expected.get(key), found.get(key)) for key in sorted(wrong)[:3]}
        raise HarnessError(f"{topic}: {len(wrong)} of {len(expected)} keys are wrong; (expected, found): {sample}")
    return count


def arriving(consumer: Consumer) -> Iterator[tuple[str, bytes]]:
    """Keys and values as they are committed; stops after a moment without any, and can be called again."""
    while (message := consumer.poll(0.05)) is not None:
        key, value = _key_and_value(message)
        yield key.decode(), value


def _key_and_value(message: Message) -> tuple[bytes, bytes]:
    key, value = message.key(), message.value()
    if message.error() is not None or key is None or value is None:
        raise HarnessError(f"{message.topic()} has an invalid result: {message.error() or message.offset()}")
    return key, value
