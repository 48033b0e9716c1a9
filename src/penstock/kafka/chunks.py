"""Chunks: consecutive records of a partition as Arrow, made of what a consumer returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, Message

from penstock.errors import TopicError
from penstock.kafka.failures import failure
from penstock.lanes.epoch import headers_array
from penstock.records import Partition

LOST = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
"""The next record is gone."""
_TEMPORARY = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._MAX_POLL_EXCEEDED}


class Chunk(NamedTuple):
    """Consecutive records of a partition, in the order of their offsets, each with the highest timestamp up to it."""

    offsets: Any
    highest: Any
    batch: pa.RecordBatch


def by_partition(messages: Iterable[Message]) -> dict[Partition, list[Message]]:
    """Return the records of each partition, in their order."""
    found: dict[Partition, list[Message]] = {}
    for message in messages:
        found.setdefault((message.topic(), message.partition()), []).append(message)  # type: ignore[arg-type]
    return found


def chunk_of(messages: list[Message], latest: int) -> Chunk:
    """Return records of one partition by column; `latest` is the highest timestamp before them."""
    offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
    timestamps = np.fromiter((timestamp for _, timestamp in map(Message.timestamp, messages)), np.int64, len(messages))
    headers: list[Any] = list(map(Message.headers, messages))
    columns = [
        pa.array(offsets),
        pa.array(timestamps),
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        headers_array(headers),
    ]
    highest = np.maximum(np.maximum.accumulate(timestamps), latest)
    return Chunk(offsets, highest, pa.RecordBatch.from_arrays(columns, ["offset", "timestamp", "key", "value", "headers"]))


def end_in(message: Message) -> tuple[Partition, int] | None:
    """Return where a partition ends, if this message says so; raise other errors unless the client recovers from them."""
    error, topic, number = message.error(), message.topic(), message.partition()
    assert error is not None
    if error.code() == KafkaError._PARTITION_EOF:
        return (str(topic), int(number or 0)), int(message.offset() or 0)
    if error.code() in LOST:
        raise TopicError(f"Cannot read {topic}-{number}: the next record is gone ({error.str()}).")
    if not (error.retriable() or error.code() in _TEMPORARY):
        raise failure(error, f"Cannot read {topic}-{number}" if topic else "Cannot read the source topics")
    return None
