"""How far a slot reads ahead of what it was asked for, with a consumer that always has more; others are in `tests/jvm/kafka`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Message

from penstock.kafka import range_reader as module
from penstock.kafka.range_reader import RangeReader
from penstock.records import Partition

SIZE, PARTITIONS, MOST_BYTES = 10_000, 4, 2_000_000
PLACES: list[Partition] = [("t", number) for number in range(PARTITIONS)]


def record(place: Partition, offset: int) -> Message:
    return Message(topic=place[0], partition=place[1], offset=offset, value=bytes(SIZE), timestamp=(0, 7))


class Consumer:
    """Has `rates[n]` records of partition n at a time, without end, unless that is paused."""

    def __init__(self, rates: list[int]) -> None:
        self._rates = rates
        self._at: dict[Partition, int] = {}
        self._paused: set[Partition] = set()

    def assign(self, places: list[Any]) -> None:
        self._at = {(place.topic, place.partition): place.offset for place in places}

    def pause(self, places: list[Any]) -> None:
        self._paused |= {(place.topic, place.partition) for place in places}

    def resume(self, places: list[Any]) -> None:
        self._paused -= {(place.topic, place.partition) for place in places}

    def consume(self, most: int, within_s: float) -> list[Message]:
        found = []
        for place in self._at.keys() - self._paused:
            for _ in range(self._rates[place[1]]):
                found.append(record(place, self._at[place]))
                self._at[place] += 1
        return found

    def close(self) -> None:
        pass


def opened(monkeypatch: pytest.MonkeyPatch, rates: list[int]) -> RangeReader:
    monkeypatch.setattr(module, "open_consumer", lambda settings: Consumer(rates))
    return RangeReader({}, 0.2, MOST_BYTES)


def kept_bytes(reader: RangeReader) -> int:
    return sum(chunk.batch.nbytes for chunks in reader._chunks.values() for chunk in chunks)


def count(found: Iterator[Any]) -> int:
    return sum(batch.num_rows for _, batch in found)


def test_partitions_that_are_far_ahead_by_their_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition is slow: until its range is complete, the others would bring 300 MB."""
    with closing(opened(monkeypatch, [1, 100, 100, 100])) as reader:
        first = {place: (0, 100 if place[1] == 0 else 10) for place in PLACES}
        assert count(reader.read(first)) == 130
        assert kept_bytes(reader) < 1.1 * SIZE * 130 + 2 * MOST_BYTES + 300 * SIZE
        then = {place: (end, end + 100) for place, (_, end) in first.items()}
        assert count(reader.read(then)) == 400


def test_a_partition_whose_range_is_wanted_is_read_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(monkeypatch, [50] * PARTITIONS)) as reader:
        for begin in (0, 1_000):
            assert count(reader.read({PLACES[0]: (begin, begin + 1_000)})) == 1_000


def test_one_partition_may_use_what_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(monkeypatch, [1, 7, 0, 0])) as reader:
        list(reader.read({PLACES[0]: (0, 20), **dict.fromkeys(PLACES[1:], (0, 0))}))
        assert reader._read_to[PLACES[1]] == 140  # more than its quarter of what is kept
