"""The numbers by which Spark partitions lanes; `tests/jvm/cluster` shows that their tasks run where they should."""

from __future__ import annotations

import pytest

from penstock.spark.hosts import _hash, labels


@pytest.mark.parametrize(
    ("number", "hashed"), [(0, 933211791), (1, -559580957), (2, 1765031574), (3, -1823081949), (42, 29417773)]
)
def test_the_hash_of_a_number_is_that_of_spark(number: int, hashed: int) -> None:
    assert _hash(number) == hashed


@pytest.mark.parametrize("lanes", [1, 2, 7, 64])
def test_every_lane_has_a_number_of_its_own_partition(lanes: int) -> None:
    assert [_hash(label) % lanes for label in labels(lanes)] == list(range(lanes))
