"""The records: JSON of exactly 100 bytes from a seed, their totals, and writing them to a topic."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer

from verification.harness import topics
from verification.harness.patience import TIMEOUT_S
from verification.harness.processes import HarnessError, wait_until

PARTITIONS = 4
VALUE_BYTES = 100
SEED = 7

Record = tuple[str, int, bytes]
"""Key, amount, and the value that contains both."""
Totals = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A topic with the records of a workload, and the result when each is counted once."""

    topic: str
    records: int
    totals: Totals


def value(number: int, key: str, amount: int) -> bytes:
    """A document of exactly 100 bytes."""
    text = f'{{"id":{number},"user":"{key}","amount":{amount},"note":"'
    return f'{text}{"x" * (VALUE_BYTES - len(text) - 2)}"}}'.encode()


def random_keys(count: int, keys: int) -> Iterator[Record]:
    """Records with repeated keys, in random order."""
    chance = random.Random(SEED)
    for number in range(count):
        key, amount = f"k{int(chance.random() * keys)}", int(chance.random() * 1000)
        yield key, amount, value(number, key, amount)


def each_key_once(count: int) -> Iterator[Record]:
    """As many keys as records."""
    for number in range(count):
        key, amount = f"k{number}", number % 1000
        yield key, amount, value(number, key, amount)


def create(bootstrap_servers: str, topic: str) -> None:
    """Create a topic and wait until its leaders are ready."""
    topics.create(bootstrap_servers, topic, PARTITIONS)

    def answers() -> bool:
        with contextlib.suppress(KafkaException):
            return len(topics.end_offsets(bootstrap_servers, topic)) == PARTITIONS
        return False

    wait_until(f"{topic} answers", answers)


def load(bootstrap_servers: str, topic: str, records: Iterable[Record]) -> Loaded:
    """Create the topic and write the records into it."""
    create(bootstrap_servers, topic)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
        }
    )
    count = 0
    totals: Totals = {}
    for key, amount, document in records:
        while True:
            try:
                producer.produce(topic, document, key)
                break
            except BufferError:
                producer.poll(0.1)
        total = totals.setdefault(key, [0, 0])
        total[0] += 1
        total[1] += amount
        count += 1
    if producer.flush(TIMEOUT_S) or sum(topics.end_offsets(bootstrap_servers, topic).values()) != count:
        raise HarnessError(f"{topic} does not contain the {count} records that were written to it")
    return Loaded(topic, count, totals)
