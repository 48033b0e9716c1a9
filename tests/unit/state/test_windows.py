"""Window stores: which windows are visible, in which order, and which have expired."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import StateError
from penstock.records import ValueAndTimestamp, Windowed
from penstock.serdes import Bytes, String
from penstock.state import LaneState, MemoryEngine, segments
from tests.unit.state.homes import MINUTE, Home, logged, of_stores, timestamped_window, window

BOTH = pytest.mark.parametrize("time_ordered", [False, True])


def starts(rows: Any) -> list[tuple[Any, int]]:
    return [(windowed.key, windowed.start) for windowed, _ in rows]


@BOTH
def test_a_window_is_put_read_and_deleted(home: Home, time_ordered: bool) -> None:
    lane = home.lane()
    spec = window(time_ordered=time_ordered)
    store = lane.store(spec)
    assert store.observed_stream_time == -1
    assert list(store.all()) == []
    assert list(store.fetch_range("a", 0, 100)) == []
    assert store.put("a", "1", 10)
    assert store.put("a", "2", 20)
    assert store.fetch("a", 10) == "1"
    assert store.fetch("a", 11) is None
    lane.commit(0)
    store = home.lane().store(spec)
    assert store.observed_stream_time == 20
    assert store.put("a", None, 10)
    assert store.fetch("a", 10) is None
    assert list(store.fetch_range("a", 0, 100)) == [(20, "2")]
    assert list(store.items()) == [(Windowed("a", 20, 30), "2")]


@BOTH
@pytest.mark.parametrize("committed", [True, False])
def test_a_keys_windows_come_by_start_without_other_keys(home: Home, time_ordered: bool, committed: bool) -> None:
    lane = home.lane()
    store = lane.store(window(key=Bytes(), time_ordered=time_ordered))
    keys = [b"a", b"a\x00", b"a\x00\x00\x00\x00\x00\x00\x00\x00", b"", b"b", b"a" * 600]
    times = [0, 5, MINUTE - 1, MINUTE, 2 * MINUTE - 1]
    for key in keys:
        for time in times:
            store.put(key, f"{key!r}{time}", time)
    if committed:
        lane.commit(0)
    for key in keys:
        assert list(store.fetch_range(key, 0, 10 * MINUTE)) == [(time, f"{key!r}{time}") for time in times]
        assert [time for time, _ in store.fetch_range(key, 5, MINUTE, reverse=True)] == [MINUTE, MINUTE - 1, 5]
        assert list(store.fetch_range(key, 6, 7)) == []
        assert list(store.fetch_range(key, 7, 6)) == []


def test_scans_come_by_segment_then_by_the_keys_bytes(home: Home) -> None:
    store = home.lane().store(window())
    for key in ["b", "a", "c"]:
        for time in [MINUTE, 5, 0]:
            store.put(key, key, time)
    first = [("a", 0), ("a", 5), ("b", 0), ("b", 5), ("c", 0), ("c", 5)]
    second = [("a", MINUTE), ("b", MINUTE), ("c", MINUTE)]
    assert starts(store.all()) == first + second
    assert starts(store.all(reverse=True)) == (first + second)[::-1]
    assert starts(store.fetch_all(5, MINUTE)) == [("a", 5), ("b", 5), ("c", 5), *second]
    assert starts(store.fetch_keys("b", "c", 0, 5)) == first[2:]
    assert starts(store.fetch_keys("b", None, 0, MINUTE, reverse=True)) == [*second[:0:-1], *first[:1:-1]]
    assert starts(store.fetch_keys(None, "a", 0, MINUTE)) == [("a", 0), ("a", 5), ("a", MINUTE)]
    assert list(store.fetch_keys("c", "b", 0, MINUTE)) == []
    assert list(store.fetch_keys("a", "c", 6, 7)) == []
    assert list(store.fetch_all(6, 5)) == []


def test_a_time_ordered_store_scans_by_time(home: Home) -> None:
    store = home.lane().store(window(time_ordered=True))
    for key in ["b", "a"]:
        for time in [MINUTE, 5, 0]:
            store.put(key, key, time)
    ordered = [(key, time) for time in [0, 5, MINUTE] for key in "ab"]
    assert starts(store.all()) == ordered
    assert starts(store.all(reverse=True)) == ordered[::-1]
    assert starts(store.fetch_all(1, 5)) == [("a", 5), ("b", 5)]
    assert starts(store.fetch_keys("a", "a", 0, MINUTE)) == [("a", 0), ("a", 5), ("a", MINUTE)]


def test_a_key_range_includes_prefixes_of_its_end(home: Home) -> None:
    store = home.lane().store(window(key=Bytes()))
    keys = [b"a", b"a\x00", b"a" + b"\x00" * 9, b"a" + b"\x00" * 20]
    for key in keys:
        store.put(key, "v", 1000)
    assert {windowed.key for windowed, _ in store.fetch_keys(b"a", keys[-1], 0, 2000)} == set(keys)
    assert {windowed.key for windowed, _ in store.fetch_keys(None, b"a\xff", 0, 2000)} == set(keys)
    assert {windowed.key for windowed, _ in store.fetch_keys(None, b"\xff", 0, 2000)} == set(keys)
    assert [windowed.key for windowed, _ in store.fetch_keys(b"a\x00", b"a\x00", 0, 2000)] == [b"a\x00"]


@pytest.mark.parametrize(("time_ordered", "oldest"), [(False, 1), (True, 0)])
def test_windows_older_than_the_retention_are_rejected_and_hidden(home: Home, time_ordered: bool, oldest: int) -> None:
    store = home.lane().store(window(retention_ms=100, time_ordered=time_ordered))
    for time in range(3):
        assert store.put("k", str(time), time)
    assert store.put("other", "now", 100)
    assert [time for time, _ in store.fetch_range("k", 0, 200)] == list(range(oldest, 3))
    assert [time for _, time in starts(store.all()) if time < 100] == list(range(oldest, 3))
    assert [time for _, time in starts(store.fetch_keys("k", "k", 0, 200))] == list(range(oldest, 3))
    assert store.fetch("k", oldest) is not None
    assert store.fetch("k", oldest - 1) is None
    assert store.put("late", "v", oldest)
    assert not store.put("late", "v", oldest - 1)
    assert store.fetch("late", oldest) == "v"


@BOTH
def test_expired_segments_are_removed_without_changelog_rows_and_restored_by_a_rollback(
    home: Home, time_ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_SHARE", 4)
    lane = home.lane()
    spec = window(time_ordered=time_ordered)
    store = lane.store(spec)
    for number in range(10):
        store.put("k", str(number), number)
    lane.commit(0)
    store.put("k", "now", 10 * MINUTE)
    assert len(logged(lane.commit(1))["windows"]) == 1
    lane.roll_back()
    assert len(list(store.fetch_range("k", 0, 100))) == 10
    store.put("k", "now", 10 * MINUTE)
    lane.commit(1)
    sizes = [len(list(lane.space("windows").scan()))]
    for epoch in range(2, 8):
        assert of_stores(lane.commit(epoch)) == []
        sizes.append(len(list(lane.space("windows").scan())))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == (2 if time_ordered else 1)


@BOTH
def test_a_window_that_expires_in_its_own_epoch_leaves_no_trace(home: Home, time_ordered: bool) -> None:
    lane = home.lane()
    store = lane.store(window(time_ordered=time_ordered))
    store.put("old", "1", 0)
    store.put("new", "1", 10 * MINUTE)
    assert [key[:3] for key in logged(lane.commit(0))["windows"]] == [b"new"]
    assert starts(store.all()) == [("new", 10 * MINUTE)]


def test_all_duplicates_are_kept_in_order_of_arrival(home: Home) -> None:
    lane = home.lane()
    spec = window(retain_duplicates=True)
    store = lane.store(spec)
    store.put("k", "1", 10)
    store.put("k", "2", 10)
    assert not store.put("k", None, 10)
    store.put("k", "0", 9)
    assert list(store.fetch_range("k", 0, 20)) == [(9, "0"), (10, "1"), (10, "2")]
    assert [value for _, value in store.fetch_range("k", 0, 20, reverse=True)] == ["2", "1", "0"]
    lane.commit(0)
    lane = home.lane()
    store = lane.store(spec)
    store.put("k", "3", 10)
    assert [value for _, value in store.fetch_range("k", 10, 10)] == ["1", "2", "3"]
    assert store.fetch("k", 10) == "3"


def test_a_timestamped_window_store_keeps_times(home: Home) -> None:
    lane = home.lane()
    store = lane.store(timestamped_window())
    assert store.put("k", 1, 10, 12)
    assert store.put("k", 2, 20, 25)
    assert store.fetch("k", 10) == 1
    assert store.fetch_entry("k", 10) == ValueAndTimestamp(1, 12)
    assert store.fetch_entry("k", 11) is None
    assert list(store.fetch_range("k", 0, 30)) == [(10, 1), (20, 2)]
    assert list(store.entries.fetch_range("k", 0, 30)) == [(10, (1, 12)), (20, (2, 25))]
    assert store.entries.fetch("k", 20) == ValueAndTimestamp(2, 25)
    assert list(store.entries.all()) == [(Windowed("k", 10, 20), (1, 12)), (Windowed("k", 20, 30), (2, 25))]
    assert store.entries.observed_stream_time == 20
    rows = logged(lane.commit(0))["aggregates"]
    key = b"k" + (10).to_bytes(8, "big") + bytes(4)
    assert rows[key] == (12).to_bytes(8, "big") + (1).to_bytes(8, "big")
    store.put("k", None, 10)
    assert store.fetch("k", 10) is None


def test_a_window_that_would_end_after_the_maximum_time_ends_at_it() -> None:
    store = LaneState(MemoryEngine()).store(window(window_size_ms=2**62, retention_ms=2**62))
    store.put("k", "v", 2**62 + 5)
    assert starts(store.all()) == [("k", 2**62 + 5)]
    assert next(store.all())[0].end == 2**63 - 1


def test_a_null_key_is_rejected() -> None:
    store = LaneState(MemoryEngine()).store(window(key=String()))
    with pytest.raises(StateError, match="null key"):
        store.put(None, "v", 1)


@pytest.mark.parametrize(("cached", "seen"), [(False, [119_000, 130_000, 200_000]), (True, [60_000, 119_000, 130_000, 200_000])])
def test_with_a_cache_expired_windows_are_seen_until_their_segment_goes(home: Home, cached: bool, seen: list[int]) -> None:
    store = home.lane().store(timestamped_window(cached=cached))  # kept for 120 s, in segments of 60 s
    for start in (0, 59_999, 60_000, 119_000, 130_000, 200_000):
        store.put("k", start, start, start)
    assert [windowed.start for windowed, _ in store.all()] == seen
    assert [start for start, _ in store.fetch_range("k", 0, 300_000)] == seen
    assert [windowed.start for windowed, _ in store.entries.fetch_keys("k", "k", 0, 300_000)] == seen
    assert [start for start in (0, 59_999, 60_000, 119_000, 130_000) if store.fetch_entry("k", start)] == seen[:-1]


@pytest.mark.parametrize(("cached", "taken"), [(False, False), (True, True)])
def test_with_a_cache_expired_windows_can_be_added_to_until_their_segment_goes(home: Home, cached: bool, taken: bool) -> None:
    store = home.lane().store(timestamped_window(cached=cached))
    store.put("k", 1, 200_000, 200_000)
    assert store.put("late", 2, 61_000, 61_000) is taken
    assert store.put("too late", 3, 59_999, 59_999) is False
    assert [windowed.key for windowed, _ in store.all()] == (["late", "k"] if taken else ["k"])


def test_with_a_cache_all_windows_are_visible_during_the_first_retention(home: Home) -> None:
    store = home.lane().store(timestamped_window(cached=True))
    store.put("k", 1, 0, 0)
    store.put("k", 2, 120_000, 120_000)
    assert [start for start, _ in store.fetch_range("k", 0, 120_000)] == [0, 120_000]
