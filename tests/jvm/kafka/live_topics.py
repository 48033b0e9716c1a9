"""Configurations, rows and offsets for tests against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from penstock.config import Config
from penstock.epochs.wire import OUT
from penstock.kafka.clients import consumer_settings, open_consumer
from penstock.kafka.commit import SourceOffset
from penstock.kafka.offsets import committed
from penstock.kafka.publishers import TransactionalPublisher
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until


def config(bootstrap_servers: str, **overrides: Any) -> Config:
    return Config.load(environment={}, bootstrap_servers=bootstrap_servers, **overrides)


def new_topic(bootstrap_servers: str, name: str = "topic", partitions: int = 1, **settings: str) -> str:
    """Create a topic with a unique name."""
    unique = f"{name}-{uuid4().hex[:8]}"
    topics.create(bootstrap_servers, unique, partitions, {key.replace("_", "."): value for key, value in settings.items()})
    return unique


def row(value: bytes | None, **columns: Any) -> dict[str, Any]:
    return {"kind": 1, "name": 0, "topic": None, "partition": None, "timestamp": 5, "key": b"k", "headers": None} | {
        "value": value,
        **columns,
    }


def rows(*each: dict[str, Any] | bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row(one) if isinstance(one, bytes) else one for one in each], schema=OUT)


def at(offset: int, metadata: str = "m", topic: str = "input", partition: int = 0) -> SourceOffset:
    return SourceOffset(topic, partition, offset, metadata)


@contextmanager
def hanging(broker: Broker) -> Iterator[None]:
    """Suspend the broker during the block, and wait until all of its threads have stopped."""
    broker.pause()
    try:
        tasks = list(Path(f"/proc/{broker.pid}/task").iterdir())
        wait_until("all threads have stopped", lambda: all(_state(task) == "T" for task in tasks), 20, every_s=0.01)
        yield
    finally:
        broker.resume()


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def wait_until_settled(bootstrap_servers: str, topic: str, group: str | None = None) -> None:
    """Wait until the markers of a commit are written, in the topic and in the group's offsets."""
    if group is not None:
        offset_of(bootstrap_servers, group)
    topics.wait_until_settled(bootstrap_servers, topic)


def values(bootstrap_servers: str, topic: str) -> list[bytes | None]:
    """Return what a reader of committed records finds when all transactions are settled."""
    wait_until_settled(bootstrap_servers, topic)
    return [record.value for record in topics.read(bootstrap_servers, topic)]


def offset_of(bootstrap_servers: str, group: str, partition: int = 0) -> tuple[int, str] | None:
    """Return the offset and the metadata that the group has committed for the topic `input`."""
    consumer = open_consumer(consumer_settings(config(bootstrap_servers), group))
    try:
        return committed(consumer, [("input", partition)], 20_000)["input", partition]
    finally:
        consumer.close()


@contextmanager
def publisher(settings: Config, application: str, *names: str, **options: Any) -> Iterator[TransactionalPublisher]:
    """A started publisher; like a dead process, it leaves an open transaction open at the end."""
    started = TransactionalPublisher(settings, application, application, names, **options)
    started.start()
    yield started
    started.close()
