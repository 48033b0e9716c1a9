"""The shares of slots that read for themselves, and the reader of a slot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.engines.reading import Reading, ReadingSlot
from penstock.epochs.hops import INPUT
from penstock.epochs.program import Epoch
from penstock.records import Partition, Ranges
from tests.unit.engines.programs import Lists
from tests.unit.epochs.application import some_records

ORIGINS = tuple((topic, number) for topic in ("in", "more") for number in range(5))
EPOCH = Epoch(3, 2, 0, ORIGINS, (-1,) * len(ORIGINS))
SOURCE_OF = {"in": 0, "more": 1}
LISTS = Lists({place: some_records(seed=number, count=9) for number, place in enumerate(ORIGINS)})


class Counting:
    """A reader that notes how often it was opened and closed."""

    opened = 0
    closed = 0

    def __init__(self) -> None:
        Counting.opened += 1

    def read(self, ranges: Ranges) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        return LISTS.read(ranges)

    def close(self) -> None:
        Counting.closed += 1


def reading(ranges: Ranges) -> Reading:
    return Reading(ranges, SOURCE_OF, Counting)


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_every_range_belongs_to_one_slot(count: int) -> None:
    ranges = {place: (number, number + 2) for number, place in enumerate(ORIGINS) if number != 4}
    shares = reading(ranges).shares(EPOCH, count)
    assert len(shares) == count
    assert [place for share in shares for place in share.ranges if share.ranges[place] != ranges[place]] == []
    assert sorted(place for share in shares for place in share.ranges) == sorted(ranges)
    sizes = [len(share.ranges) for share in shares]
    assert max(sizes) - min(sizes) <= 2


def test_a_partition_stays_with_its_slot_whatever_an_epoch_reads() -> None:
    """Its consumer has prefetched it."""
    every = reading(dict.fromkeys(ORIGINS, (0, 9))).shares(EPOCH, 3)
    some = reading(dict.fromkeys(ORIGINS[::4], (0, 9))).shares(replace(EPOCH, number=4), 3)
    for before, after in zip(every, some, strict=True):
        assert after.ranges.keys() <= before.ranges.keys()


def test_records_have_the_codes_of_their_source_and_partition_and_the_reader_stays_open() -> None:
    Counting.opened = Counting.closed = 0
    slot = ReadingSlot()
    assert slot.records(EPOCH, reading({})) == []
    assert Counting.opened == 0
    for _ in range(2):
        table = pa.Table.from_batches(slot.records(EPOCH, reading({("more", 1): (2, 4), ("in", 3): (0, 1)})))
        assert table.schema == INPUT
        found = [(row["name"], row["origin"], row["offset"]) for row in table.to_pylist()]
        assert found == [(1, 6, 2), (1, 6, 3), (0, 3, 0)]
    assert (Counting.opened, Counting.closed) == (1, 0)
    slot.close()
    slot.close()
    assert (Counting.opened, Counting.closed) == (1, 1)
