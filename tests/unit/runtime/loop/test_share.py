"""The share of the input that an epoch takes: the right amount of every partition, and everything in the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import Partition
from penstock.runtime.loop.share import Room, take

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
PLACES = (A0, A1, B0)
PLENTY = Room(10**9, 10**15)


def weighing(sizes: dict[Partition, float]) -> Room:
    return Room(10**9, 1_000, (lambda place: sizes[place],))


def test_all_of_it_if_there_is_room() -> None:
    assert take({A0: 3, A1: 5}, {A0: 9, A1: 5}, (), PLENTY) == {A0: 9, A1: 5}


def test_nothing_of_a_partition_that_waits() -> None:
    assert take({A0: 3, A1: 5}, {A0: 9, A1: 8}, {A0}, PLENTY) == {A0: 3, A1: 8}


def test_what_waits_takes_no_room() -> None:
    assert take({A0: 0, A1: 0}, {A0: 1_000, A1: 10}, {A0}, Room(10, 0)) == {A0: 0, A1: 10}


def test_the_same_part_of_every_partition() -> None:
    assert take({A0: 0, A1: 0, B0: 7}, {A0: 600, A1: 300, B0: 107}, (), Room(100, 0)) == {A0: 60, A1: 30, B0: 17}


def test_bytes_limit_it_too() -> None:
    assert take({A0: 0, A1: 0}, {A0: 100, A1: 100}, (), weighing({A0: 15.0, A1: 5.0})) == {A0: 50, A1: 50}


def test_the_tightest_of_several_weights_counts() -> None:
    room = Room(10**9, 1_000, (lambda place: 1.0, lambda place: 100.0))
    assert take({A0: 0}, {A0: 500}, (), room) == {A0: 10}


@pytest.mark.parametrize("room", [Room(1, 10**9), Room(1_000, 5, (lambda place: 1e6,))])
def test_there_is_always_room_for_one_record(room: Room) -> None:
    taken = take({A0: 4, A1: 4, B0: 4}, {A0: 5, A1: 9, B0: 4}, (), room)
    assert sorted(taken.values()) == [4, 4, 5]


def test_no_record_is_taken_where_there_is_none() -> None:
    assert take({A0: 4, A1: 2}, {A0: 4, A1: 2}, (), Room(1, 1)) == {A0: 4, A1: 2}


def test_the_remainder_goes_to_the_shares_that_were_rounded_down_most() -> None:
    assert take({A0: 0, A1: 0}, {A0: 10, A1: 9}, (), Room(2, 0)) == {A0: 1, A1: 1}


@given(
    there=st.lists(st.integers(0, 5_000), min_size=3, max_size=3),
    records=st.integers(1, 3_000),
    sizes=st.lists(st.integers(0, 10_000), min_size=3, max_size=3),
)
def test_epochs_take_everything_once_and_never_too_much(there: list[int], records: int, sizes: list[int]) -> None:
    weights = dict(zip(PLACES, map(float, sizes), strict=True))
    room = Room(records, 100_000, (lambda place: weights[place],))
    offsets, read_to = dict.fromkeys(PLACES, 0), dict(zip(PLACES, there, strict=True))
    while offsets != read_to:
        taken = take(offsets, read_to, (), room)
        counts = {place: taken[place] - offsets[place] for place in PLACES}
        count = sum(counts.values())
        size = sum(count * weights[place] for place, count in counts.items())
        assert all(count >= 0 for count in counts.values())
        assert all(taken[place] <= read_to[place] for place in PLACES)
        assert 1 <= count <= records
        assert count == 1 or size <= 100_000 + 3 * max(sizes)  # each share is rounded
        offsets = taken
