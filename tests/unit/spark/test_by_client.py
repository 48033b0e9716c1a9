"""Records that our own client has read, as the input of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from penstock.epochs.hops import INPUT
from penstock.records import Partition
from penstock.spark import by_client
from penstock.spark.by_client import Part, Record, batches_of

NANOSECONDS = 1_794_778_322_590_913_092


def read(positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[Record]:
    [(place, begin)] = positions.items()
    for offset in range(begin, ends[place]):
        yield *place, offset, None if offset == 3 else b"k", b"v%d" % offset, NANOSECONDS + offset, (("h", None),) * (offset % 2)


def test_records_keep_their_timestamps_whatever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_client, "_ROWS", 2)
    batches = list(batches_of(read, Part(4, 7, ("in", 1), 2, 5)))
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert all(batch.schema.names == [*INPUT.names, "partition"] for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows[1] == {
        "name": 4,
        "origin": 7,
        "offset": 3,
        "timestamp": NANOSECONDS + 3,
        "key": None,
        "value": b"v3",
        "headers": [{"name": "h", "value": None}],
        "partition": 1,
    }
    assert [row["headers"] for row in rows] == [None, rows[1]["headers"], None]


def test_a_part_without_records_gives_nothing() -> None:
    assert list(batches_of(read, Part(0, 0, ("in", 0), 5, 5))) == []
