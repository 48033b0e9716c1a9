"""Copies of changelogs are complete, in order, and in transactions of limited size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.history import copying
from penstock.history.copying import Copies, batches_of, one_row
from penstock.kafka.commit import Committer, SourceOffset
from penstock.kafka.records import TopicRecord
from tests.unit.runtime.noting import Noted


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_BATCH_ROWS", 3)
    monkeypatch.setattr(copying, "_BATCH_BYTES", 100)
    monkeypatch.setattr(copying, "_MOST_ROWS", 5)


def records(count: int, size: int = 1) -> Iterator[TopicRecord]:
    for number in range(count):
        yield TopicRecord("t", 0, number, b"k%d" % number, b"v" * size, number, ())


@pytest.mark.usefixtures("small")
def test_batches_are_limited_by_rows_and_by_bytes() -> None:
    assert [batch.num_rows for batch in batches_of(records(7))] == [3, 3, 1]
    assert [batch.num_rows for batch in batches_of(records(3, size=200))] == [1, 1, 1]
    assert list(batches_of(records(0))) == []


@pytest.mark.usefixtures("small")
def test_a_full_transaction_is_committed_and_the_rest_with_the_offsets() -> None:
    publisher = Noted()
    full: list[int] = []
    copies = Copies(Committer(publisher), full.append)
    copies.add("to", 2, batches_of(records(8)))
    assert (full, copies.rows) == ([6], 8)
    copies.add("lanes", 0, one_row(b"topology", b"{}"))
    copies.commit([SourceOffset("in", 0, 5, "")])
    first, second = publisher.published
    assert [row["key"] for row in (*first, *second)] == [b"k%d" % number for number in range(8)] + [b"topology"]
    assert {(row["topic"], row["partition"], row["name"]) for row in second} == {("to", 2, -1), ("lanes", 0, -1)}
    assert [row["timestamp"] for row in first] == list(range(6))
    assert [len(offsets) for offsets in publisher.offsets] == [0, 1]
