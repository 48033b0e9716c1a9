"""Reads changelogs from given positions to given ends, in large pieces, committed records only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.errors import BrokerError, StateError
from penstock.kafka.clients import open_consumer
from penstock.kafka.failures import failure, translated
from penstock.kafka.offsets import Partition

PIECE = 50_000
_POLL_S = 0.2


class ChangelogRows(NamedTuple):
    """Rows of one partition, in order: a key's value, or None where it was deleted."""

    topic: str
    partition: int
    keys: list[bytes]
    values: list[bytes | None]


def read(
    settings: Mapping[str, str],
    positions: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    timeout_ms: int,
    piece: int = PIECE,
) -> Iterator[ChangelogRows]:
    """All rows from `positions` up to `ends`, which are offsets as the broker tells them.

    The last record of a partition is not at its end: control records and aborted ones have offsets, too. So a partition is done
    when a record at or past its end turns up, or when the client reports that it has come to that offset and found nothing.
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
    heard = time.monotonic()
    while left:
        try:
            messages = consumer.consume(piece, _POLL_S)
        except KafkaException as error:
            raise translated(error, "changelogs could not be read") from error
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > timeout_s:
            waiting = ", ".join(f"{topic}-{number}" for topic, number in sorted(left)[:5])
            raise BrokerError(f"nothing was heard of {waiting} for {timeout_s:g} s")
        yield from _rows(messages, left)


def _rows(messages: list[Message], left: dict[Partition, int]) -> Iterator[ChangelogRows]:
    """The messages as rows by partition; takes partitions off `left` that have come to their end."""
    found: dict[Partition, ChangelogRows] = {}
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
                    f"{topic}-{number} at offset {offset}: a changelog row without a key; somebody else writes there"
                )
            rows.keys.append(key)
            rows.values.append(message.value())
            offset += 1
        elif error is not None and error.code() != KafkaError._PARTITION_EOF:
            _refuse(error, f"{topic}-{number}")
        if offset >= end:
            del left[partition]
    yield from found.values()


def _refuse(error: KafkaError | None, what: str) -> None:
    """A position that the log no longer has is not caught up from: the store would miss what was in between."""
    if error is None:
        return
    if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
        raise StateError(f"{what}: the changelog no longer has the offset to go on from; rebuild the store from its beginning")
    if not error.retriable():
        raise failure(error, f"{what} could not be read")
