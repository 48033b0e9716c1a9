"""Reads complete records from given positions to given ends: for global tables, dead letters, savepoints and renames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, TopicPartition

from penstock import machine
from penstock.errors import BrokerError, TopicError
from penstock.kafka.chunks import LOST
from penstock.kafka.clients import open_consumer
from penstock.kafka.failures import failure
from penstock.records import NO_HEADERS, Headers, Partition

_POLL_S = 0.05


class TopicRecord(NamedTuple):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class RecordReader:
    """A consumer that stays open between reads; it reads at most `piece` records at a time."""

    def __init__(self, settings: Mapping[str, str], timeout_ms: int, piece: int = 10_000) -> None:
        self._consumer = open_consumer(settings)
        self._timeout_s = timeout_ms / 1_000
        self._piece = piece

    def read(self, positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[TopicRecord]:
        """Yield all committed records from `positions` up to `ends`, in order within each partition."""
        left = {partition: end for partition, end in ends.items() if positions[partition] < end}
        if not left:
            return
        self._consumer.assign([TopicPartition(topic, number, positions[topic, number]) for topic, number in left])
        heard = machine.monotonic()
        while left:
            messages = self._consumer.consume(self._piece, _POLL_S)
            if messages:
                heard = machine.monotonic()
            elif machine.monotonic() - heard > self._timeout_s:
                waiting = ", ".join(f"{topic}-{number}" for topic, number in sorted(left)[:5])
                raise BrokerError(f"Received nothing from {waiting} for {self._timeout_s:g} s. Check that the brokers are up.")
            for message in messages:
                partition = (str(message.topic()), int(message.partition() or 0))
                offset, error = int(message.offset() or 0), message.error()
                if partition not in left:
                    continue
                if error is None and offset < left[partition]:
                    _, timestamp = message.timestamp()
                    headers: Any = message.headers()  # typed wider than what a consumer gives
                    key, value = message.key(), message.value()
                    yield TopicRecord(*partition, offset, key, value, timestamp, tuple(headers or ()) or NO_HEADERS)
                    offset += 1
                elif error is not None and error.code() in LOST:
                    raise TopicError(f"Cannot read {partition[0]}-{partition[1]}: the next record is gone ({error.str()}).")
                elif error is not None and error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                    raise failure(error, f"Cannot read {partition[0]}-{partition[1]}")
                if offset >= left[partition]:
                    del left[partition]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def read_records(
    settings: Mapping[str, str], positions: Mapping[Partition, int], ends: Mapping[Partition, int], timeout_ms: int
) -> Iterator[TopicRecord]:
    """Yield all committed records from `positions` up to `ends`, using a new consumer."""
    reader = RecordReader(settings, timeout_ms)
    try:
        yield from reader.read(positions, ends)
    finally:
        reader.close()
