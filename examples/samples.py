"""The sample data of the examples: `data/<topic>.jsonl`, a record per line with `key`, `at` (its time) and `value`.

`python -m examples.samples examples/fraud_detection/data` writes them to a broker; tests pipe them into a test driver.
"""

from __future__ import annotations

import heapq
import json
import os
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from penstock.testing import TopologyTestDriver

SEND_S = 30


class Sample(NamedTuple):
    """A record as a producer writes it."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int


def samples(directory: Path) -> list[Sample]:
    """The records of all files: of one topic in the order of the file, of several topics the earlier record first."""
    files = sorted(directory.glob("*.jsonl"))
    if not files:
        raise FileNotFoundError(f"There is no sample data in {directory}: expected files named <topic>.jsonl.")
    return list(heapq.merge(*map(_of_topic, files), key=lambda sample: sample.timestamp))


def pipe(driver: TopologyTestDriver, records: Iterable[Sample]) -> None:
    """Pipe records into a test driver, as they are."""
    for topic, key, value, timestamp in records:
        driver.input(topic, key=bytes, value=bytes).pipe(value, key=key, timestamp=timestamp)


def produce(bootstrap_servers: str, records: Iterable[Sample]) -> None:
    """Write records to a broker, and wait until it has all of them."""
    failures: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    # With more requests at a time, librdkafka can lose the first records of a new topic (confluent-kafka-go#921).
    safe = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random", **safe})
    for topic, key, value, timestamp in records:
        producer.produce(topic, value, key, on_delivery=delivered, timestamp=timestamp)
    left = producer.flush(SEND_S)
    if left or failures:
        raise RuntimeError(f"{bootstrap_servers}: {left} records unsent after {SEND_S} s, {len(failures)} failed: {failures[:3]}")


def _of_topic(path: Path) -> Iterator[Sample]:
    topic = path.name.removesuffix(".jsonl")
    for line in path.read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        key = found.get("key")
        at = datetime.fromisoformat(found["at"].replace("Z", "+00:00"))  # Python 3.10 does not know Z
        yield Sample(topic, None if key is None else key.encode(), _bytes(found["value"]), round(at.timestamp() * 1000))


def _bytes(value: Any) -> bytes | None:
    """Text as it is, anything else as JSON; null is a deletion."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def main() -> None:
    """Write the sample data of a directory."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m examples.samples DIRECTORY")
    servers = os.environ.get("PENSTOCK_BOOTSTRAP_SERVERS", "localhost:9092")
    found = samples(Path(sys.argv[1]))
    produce(servers, found)
    print(f"{len(found)} records written to {', '.join(sorted({sample.topic for sample in found}))} at {servers}")


if __name__ == "__main__":
    main()
