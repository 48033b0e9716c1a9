"""Versioned stores: what was valid when, whatever the order of arrival."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.records import VersionedRecord
from penstock.state import NEWEST, NOT_PUT, LaneState, MemoryEngine
from penstock.state.versions import Row, decode_row
from tests.unit.state.homes import Home, logged, versioned

KEY = b"k"


def test_the_newest_version_and_earlier_ones(home: Home) -> None:
    lane = home.lane()
    store = lane.store(versioned())
    assert store.observed_stream_time == -1
    assert store.get(KEY) is None
    assert store.put(KEY, "a", 10) == NEWEST
    assert store.put(KEY, "c", 30) == NEWEST
    assert store.put(KEY, "b", 20) == 30
    lane.commit(0)
    store = home.lane().store(versioned())
    assert store.get(KEY) == VersionedRecord("c", 30)
    assert store.get(KEY, 30) == VersionedRecord("c", 30)
    assert store.get(KEY, 29) == VersionedRecord("b", 20, 30)
    assert store.get(KEY, 19) == VersionedRecord("a", 10, 20)
    assert store.get(KEY, 9) is None
    assert store.observed_stream_time == 30
    assert list(store.items()) == [(KEY, VersionedRecord("c", 30))]


def test_deletions_are_versions_too(home: Home) -> None:
    store = home.lane().store(versioned())
    assert store.delete(KEY, 5) is None
    store.put(KEY, "a", 10)
    assert store.delete(KEY, 20) == VersionedRecord("a", 10)
    assert store.get(KEY) is None
    assert store.get(KEY, 19) == VersionedRecord("a", 10, 20)
    assert store.get(KEY, 20) is None
    assert store.put(KEY, "b", 15) == 20
    assert store.put(KEY, None, 12) == 15
    assert [record.timestamp for record in store.history(KEY, 0, 100)] == [10, 15]
    assert store.get(KEY, 12) is None
    assert store.put(KEY, None, 30) == NEWEST
    assert store.put(KEY, "c", 25) == 30
    assert store.put(KEY, "d", 40) == NEWEST
    assert list(store.all()) == [(KEY, VersionedRecord("d", 40))]


def test_an_equal_timestamp_replaces(home: Home) -> None:
    store = home.lane().store(versioned())
    store.put(KEY, "a", 10)
    assert store.put(KEY, "A", 10) == NEWEST
    store.put(KEY, "b", 20)
    assert store.put(KEY, "B", 10) == 20
    assert list(store.history(KEY, 0, 100)) == [VersionedRecord("B", 10, 20), VersionedRecord("b", 20)]
    assert store.put(KEY, None, 20) == NEWEST
    assert store.get(KEY) is None


def test_a_deletion_with_the_newest_ones_own_timestamp_leaves_no_trace(home: Home) -> None:
    store = home.lane().store(versioned())
    store.put(KEY, "a", 10)
    assert store.put(KEY, None, 10) == NEWEST
    assert store.put(KEY, "b", 5) == NEWEST  # as in Kafka Streams
    assert store.get(KEY) == VersionedRecord("b", 5)


def test_a_version_later_than_the_grace_period_is_not_put(home: Home) -> None:
    store = home.lane().store(versioned(retention_ms=100))
    store.put(KEY, "now", 1000)
    assert store.put(b"other", "late", 899) == NOT_PUT
    assert store.delete(b"other", 899) is None
    assert store.put(b"other", "in time", 900) == NEWEST
    assert store.get(b"other", 899) is None


def test_history_is_kept_for_the_retention_and_the_newest_version_forever(home: Home) -> None:
    lane = home.lane()
    store = lane.store(versioned(retention_ms=6_000))
    store.put(KEY, "a", 0)
    store.put(KEY, "b", 1_000)
    lane.commit(0)
    store.put(b"other", "x", 7_001)
    assert store.get(KEY, 1_000) == VersionedRecord("b", 1_000)
    assert store.get(KEY, 999) is None
    assert list(store.history(KEY, 0, 999)) == []
    assert list(store.history(KEY, 0, 1_000)) == [VersionedRecord("b", 1_000)]
    store.put(b"other", "y", 20_000)
    assert store.get(KEY) == VersionedRecord("b", 1_000)
    rows = logged(lane.commit(1))["versions"]
    assert [key for key, value in rows.items() if value is None] == [b"\x01" + bytes(8) + KEY]
    lane.roll_back()
    assert store.get(KEY, 999) == VersionedRecord("a", 0, 1_000)


def test_history_within_times_in_either_order(home: Home) -> None:
    store = home.lane().store(versioned())
    for time in range(0, 9_000, 1_500):
        store.put(KEY, str(time), time)
    assert [record.timestamp for record in store.history(KEY, 1_500, 4_500)] == [1_500, 3_000, 4_500]
    assert [record.timestamp for record in store.history(KEY, 1_501, 4_499, reverse=True)] == [3_000, 1_500]
    assert list(store.history(b"absent", 0, 9_000)) == []


def test_a_version_cut_short_moves_to_an_older_segment(home: Home) -> None:
    store = home.lane().store(versioned(segment_interval_ms=10))
    store.put(KEY, "a", 0)
    store.put(KEY, "c", 95)
    assert store.put(KEY, "b", 42) == 95
    assert store.put(KEY, "B", 44) == 95
    assert store.put(KEY, None, 33) == 42
    expected = [("a", 0, 33), ("b", 42, 44), ("B", 44, 95), ("c", 95, None)]
    assert [tuple(record) for record in store.history(KEY, 0, 100)] == expected


updates = st.lists(st.tuples(st.sampled_from([b"a", b"ab"]), st.none() | st.sampled_from("xyz"), st.integers(0, 120)))


@settings(max_examples=100, deadline=None)
@given(updates, st.sampled_from([7, 25, 1000]))
def test_within_the_retention_any_order_gives_the_same_history(written: Any, interval: int) -> None:
    store = LaneState(MemoryEngine()).store(versioned(retention_ms=1000, segment_interval_ms=interval))
    model: dict[bytes, dict[int, str | None]] = {b"a": {}, b"ab": {}}
    for key, value, time in written:
        if time in model[key]:
            continue  # what equal timestamps do is tested above
        model[key][time] = value
        later = [other for other in model[key] if other > time]
        assert store.put(key, value, time) == (min(later) if later else NEWEST)
    for key, versions in model.items():
        for as_of in {0, 121, *versions, *(time + 1 for time in versions), *(max(time - 1, 0) for time in versions)}:
            times = [time for time in versions if time <= as_of]
            value = versions[max(times)] if times else None
            found = store.get(key, as_of)
            assert (found.value if found else None) == value
            if found:
                assert found.timestamp == max(times)
                assert found.valid_to == min((time for time in versions if time > as_of), default=None)
        expected = [(time, versions[time]) for time in sorted(versions) if versions[time] is not None]
        assert [(record.timestamp, record.value) for record in store.history(key, 0, 200)] == expected


def test_rows_are_kept_in_kafka_streams_bytes() -> None:
    row = Row(30, [(20, None), (10, b"ab"), (5, b"")])
    data = row.encode()
    longs = [30, 5, 20, -1, 10, 2, 5, 0]
    sizes = [8, 8, 8, 4, 8, 4, 8, 4]
    head = b"".join(number.to_bytes(size, "big", signed=True) for number, size in zip(longs, sizes, strict=True))
    assert data == head + b"ab"
    assert (decode_row(data).versions, decode_row(data).next_timestamp) == (row.versions, 30)
    with pytest.raises(ValueError, match="before"):
        row.find(4)


def test_a_null_key_is_rejected() -> None:
    store = LaneState(MemoryEngine()).store(versioned())
    with pytest.raises(StateError, match="null key"):
        store.get(None)
