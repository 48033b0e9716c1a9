"""Reads committed changelog records from given positions to given ends, in large pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock import machine
from penstock.advance import advanced
from penstock.errors import BrokerError, StateError
from penstock.kafka.clients import open_consumer
from penstock.kafka.failures import failure, translated
from penstock.records import ChangelogRows, Partition

PIECE = 50_000
_POLL_S = 0.2


def read(
    settings: Mapping[str, str],
    positions: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    timeout_ms: int,
    piece: int = PIECE,
) -> Iterator[ChangelogRows]:
    """Yield all rows from `positions` up to `ends`, which are offsets as the broker reports them.

    The last offset before an end may belong to a control record or an aborted one. So a partition is done when a record at or
    past its end arrives, or when the client reports the end of the partition at or past that offset.
    """
    left = {partition: end for partition, end in ends.items() if positions.get(partition, 0) < end}
    if not left:
        return
    consumer = open_consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, number, positions.get((topic, number), 0)) for topic, number in left])
        yield from _read(consumer, left, timeout_ms / 1_000, piece)
    finally:
        consumer.close()


def _read(consumer: Consumer, left: dict[Partition, int], timeout_s: float, piece: int) -> Iterator[ChangelogRows]:
    heard = machine.monotonic()
    while left:
        try:
            messages = consumer.consume(piece, _POLL_S)
        except KafkaException as error:
            raise translated(error, "Cannot read changelogs") from error
        if messages:
            heard = machine.monotonic()
        elif machine.monotonic() - heard > timeout_s:
            waiting = ", ".join(f"{topic}-{number}" for topic, number in sorted(left)[:5])
            raise BrokerError(f"Received nothing from {waiting} for {timeout_s:g} s. Check that the brokers are up.")
        yield from _rows(messages, left)


def _rows(messages: list[Message], left: dict[Partition, int]) -> Iterator[ChangelogRows]:
    """Group the messages into rows by partition; remove partitions from `left` once they are read to their end."""
    found: dict[Partition, ChangelogRows] = {}
    where = ""
    for message in messages:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        if topic is None or number is None or offset is None:
            _refuse(message.error(), "changelogs")
            continue
        partition = (topic, number)
        end = left.get(partition)
        if end is None:
            continue
        error = message.error()
        if error is None and offset < end:
            rows = found.get(partition)
            if rows is None:
                rows = found[partition] = ChangelogRows(topic, number, [], [])
            key = message.key()
            if key is None:
                raise StateError(
                    f"{topic}-{number} at offset {offset}: changelog record without a key. Another program writes to this topic."
                )
            rows.keys.append(key)
            rows.values.append(message.value())
            offset += 1
        elif error is not None and error.code() != KafkaError._PARTITION_EOF:
            _refuse(error, f"{topic}-{number}")
        if offset >= end:
            del left[partition]
        where = f"{topic}-{number} at offset {offset}"
    if where:
        advanced(f"reading {where}")
    yield from found.values()


def _refuse(error: KafkaError | None, what: str) -> None:
    """Raise an error that cannot be retried. A position that the log no longer has is one: the store would have a gap."""
    if error is None:
        return
    if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
        raise StateError(f"{what}: the changelog no longer has the offset to continue from. Rebuild the store from its start.")
    if not error.retriable():
        raise failure(error, f"Cannot read {what}")
