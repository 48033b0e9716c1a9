"""Ranges of offsets on a real broker, as slots read them: every record of a range once, whatever was read before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from penstock.errors import BrokerError, TopicError
from penstock.kafka import range_reader as module
from penstock.kafka.clients import input_settings
from penstock.kafka.range_reader import RangeReader
from penstock.records import Partition
from tests.jvm.kafka.live_topics import config, new_topic, publisher, rows, wait_until_settled
from verification.harness import topics
from verification.harness.topics import Sent

pytestmark = pytest.mark.jvm

PATIENCE_S = 30.0
COUNT = 3_000
MOST_BYTES = 1 << 30
PARTITIONS = 3


@contextmanager
def reading(servers: str, timeout_s: float = PATIENCE_S) -> Iterator[RangeReader]:
    reader = RangeReader(input_settings(config(servers), "app"), timeout_s, MOST_BYTES)
    try:
        yield reader
    finally:
        reader.close()


@pytest.fixture
def topic(servers: str) -> str:
    made = new_topic(servers, partitions=PARTITIONS)
    topics.produce(servers, made, [Sent(value=b"%d" % number, partition=number % PARTITIONS) for number in range(COUNT)])
    return made


def offsets(reader: RangeReader, ranges: Mapping[Partition, tuple[int, int]]) -> dict[Partition, list[int]]:
    found: dict[Partition, list[int]] = {}
    for place, batch in reader.read(ranges):
        assert batch.schema.names == ["offset", "timestamp", "key", "value", "headers"]
        found.setdefault(place, []).extend(batch.column("offset").to_pylist())
        for offset, value in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True):
            assert int(value) == offset * PARTITIONS + place[1]
    return found


def expected(ranges: Mapping[Partition, tuple[int, int]]) -> dict[Partition, list[int]]:
    return {place: list(range(begin, end)) for place, (begin, end) in ranges.items() if end > begin}


def test_ranges_that_follow_each_other_and_a_range_again(servers: str, topic: str) -> None:
    with reading(servers) as reader:
        for begin, end in [(0, 1), (1, 400), (1, 400), (1, 30), (30, 1_000)]:
            ranges = {(topic, number): (begin, end) for number in range(PARTITIONS)}
            assert offsets(reader, ranges) == expected(ranges)


@pytest.mark.parametrize("seed", range(4))
def test_any_ranges_in_any_order(servers: str, topic: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs that run again, partitions that come from another slot, or that the driver has read meanwhile."""
    monkeypatch.setattr(module, "_PIECE", 100)
    monkeypatch.setattr(module, "_MOST_AHEAD", 150)
    chance = Random(seed)
    at = dict.fromkeys(range(PARTITIONS), 0)
    with reading(servers) as reader:
        for _ in range(12):
            ranges = {}
            for number in chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS)):
                begin = at[number] if chance.random() < 0.8 else chance.randrange(COUNT // PARTITIONS)
                end = chance.randint(begin, COUNT // PARTITIONS)
                ranges[topic, number] = begin, end
                at[number] = chance.choice((begin, end))
            assert offsets(reader, ranges) == expected(ranges)


def test_a_partition_that_is_far_ahead_waits(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE", 50)
    monkeypatch.setattr(module, "_MOST_AHEAD", 100)
    with reading(servers) as reader:
        first = {(topic, 0): (0, 1), (topic, 1): (0, 1_000), (topic, 2): (0, 1)}
        assert offsets(reader, first) == expected(first)
        kept = {place: sum(len(chunk.offsets) for chunk in chunks) for place, chunks in reader._chunks.items()}
        assert max(kept[topic, 0], kept[topic, 2]) <= 1 + 100 + 50
        then = {(topic, number): (1, 1_000) for number in (0, 2)}
        assert offsets(reader, then) == expected(then)


@pytest.mark.parametrize("is_committed", [True, False])
def test_ranges_that_end_with_what_ends_a_transaction(servers: str, application: str, is_committed: bool) -> None:
    topic = new_topic(servers)
    with publisher(config(servers), application, topic) as target:
        for last in (True, is_committed):
            target.begin()
            target.produce(rows(b"a", b"b"))
            target._producer.client.flush()
            target.send_offsets([])
            if last:
                assert target.commit()
            else:
                target.abort()
        wait_until_settled(servers, topic)
    with reading(servers) as reader:
        for ranges in ((0, 3), (3, 6)):
            found = [offset for _, batch in reader.read({(topic, 0): ranges}) for offset in batch.column("offset").to_pylist()]
            assert found == ([0, 1] if ranges == (0, 3) else [3, 4] if is_committed else [])


def test_records_that_are_gone_are_an_error(servers: str, topic: str) -> None:
    with reading(servers) as reader, pytest.raises(TopicError, match=f"{topic}-0"):
        list(reader.read({(topic, 0): (5 * COUNT, 6 * COUNT)}))


def test_records_that_do_not_come_are_an_error_that_names_them(servers: str, topic: str) -> None:
    with reading(servers, timeout_s=0.5) as reader, pytest.raises(BrokerError, match=f"{topic}-1 for 0.5 s"):
        list(reader.read({(topic, 1): (0, COUNT)}))


def test_nothing_to_read_needs_no_record(servers: str) -> None:
    nothing: Any = {}
    with reading(servers) as reader:
        assert list(reader.read(nothing)) == []
