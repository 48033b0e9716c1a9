"""Session stores: what is found, in which order, and what has expired."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import StateError
from penstock.records import Windowed
from penstock.state import LaneState, MemoryEngine
from tests.unit.state.homes import MINUTE, Home, logged, session

BOTH = pytest.mark.parametrize("time_ordered", [False, True])


def found(rows: Any) -> list[tuple[Any, int, int]]:
    return [tuple(windowed) for windowed, _ in rows]


@BOTH
def test_a_session_is_put_found_and_removed(home: Home, time_ordered: bool) -> None:
    lane = home.lane()
    spec = session(time_ordered=time_ordered)
    store = lane.store(spec)
    assert store.observed_stream_time == -1
    assert store.put(Windowed("k", 10, 20), "1")
    assert store.fetch_session("k", 10, 20) == "1"
    assert store.fetch_session("k", 10, 21) is None
    lane.commit(0)
    store = home.lane().store(spec)
    assert store.observed_stream_time == 20
    assert list(store.fetch("k")) == [(Windowed("k", 10, 20), "1")]
    store.remove(Windowed("k", 10, 20))
    assert list(store.items()) == []
    store.put(Windowed("k", 10, 20), "2")
    store.put(Windowed("k", 10, 20), None)
    assert list(store.all()) == []


@BOTH
@pytest.mark.parametrize("committed", [True, False])
def test_sessions_of_a_key_come_by_end_then_by_start(home: Home, time_ordered: bool, committed: bool) -> None:
    lane = home.lane()
    store = lane.store(session(time_ordered=time_ordered))
    sessions = [(5, 10), (0, 10), (20, 30), (MINUTE, MINUTE + 5), (15, MINUTE)]
    for key in ["k", "kk", "j"]:
        for start, end in sessions:
            store.put(Windowed(key, start, end), key)
    if committed:
        lane.commit(0)
    ordered = sorted(sessions, key=lambda times: (times[1], times[0]))
    assert found(store.fetch("k")) == [("k", *times) for times in ordered]
    assert found(store.fetch("k", reverse=True)) == [("k", *times) for times in ordered[::-1]]
    assert found(store.find_sessions("k", 11, 20)) == [("k", 20, 30), ("k", 15, MINUTE)]
    assert found(store.find_sessions("k", 10, 0)) == [("k", 0, 10)]
    assert found(store.find_sessions("k", 11, 20, reverse=True)) == [("k", 15, MINUTE), ("k", 20, 30)]
    assert found(store.find_sessions("k", 0, -1)) == []
    assert found(store.fetch_keys("k", "k")) == found(store.fetch("k"))
    by_keys = found(store.find_sessions_by_keys("j", "k", 0, 4))
    assert by_keys == [("j", 0, 10), ("k", 0, 10)]
    assert found(store.find_sessions_by_keys("j", "k", 0, 4, reverse=True)) == by_keys[::-1]
    assert list(store.find_sessions_by_keys("k", "j", 0, 4)) == []
    assert len(list(store.fetch_keys(None, None))) == 15


def test_sessions_by_their_end_come_by_time_from_a_time_ordered_store(home: Home) -> None:
    store = home.lane().store(session(time_ordered=True))
    for key, start, end in [("b", 0, 10), ("a", 5, 10), ("c", 1, 9), ("a", 0, 11)]:
        store.put(Windowed(key, start, end), key)
    assert found(store.find_by_end_range(0, 10)) == [("c", 1, 9), ("b", 0, 10), ("a", 5, 10)]
    assert found(store.find_by_end_range(11, 99)) == [("a", 0, 11)]
    assert found(store.find_by_end_range(12, 99)) == []
    plain = LaneState(MemoryEngine()).store(session())
    plain.put(Windowed("b", 0, 10), "1")
    plain.put(Windowed("a", 5, 10), "1")
    assert found(plain.find_by_end_range(0, 10)) == [("a", 5, 10), ("b", 0, 10)]


@BOTH
def test_sessions_past_their_retention_are_found_only_by_end_while_their_segment_is_kept(home: Home, time_ordered: bool) -> None:
    store = home.lane().store(session(retention_ms=100, time_ordered=time_ordered))
    store.put(Windowed("k", 0, 50), "old")
    store.put(Windowed("k", 51, 51), "kept")
    store.put(Windowed("now", 150, 150), "new")
    assert found(store.fetch("k")) == [("k", 51, 51)]
    assert store.fetch_session("k", 0, 50) is None
    assert store.put(Windowed("late", 0, 10), "v")
    assert list(store.fetch("late")) == []
    assert {windowed.key for windowed, _ in store.find_by_end_range(0, 60)} == {"k", "late"}
    store.put(Windowed("now", MINUTE + 100, MINUTE + 100), "new")
    assert list(store.find_by_end_range(0, MINUTE)) == []
    assert not store.put(Windowed("late", 0, 10), "v")


def test_a_removal_advances_time_but_drops_no_segment(home: Home) -> None:
    store = home.lane().store(session(retention_ms=100, time_ordered=True))
    store.put(Windowed("k", 0, 50), "old")
    store.remove(Windowed("k", 0, 2 * MINUTE))
    assert list(store.fetch("k")) == []
    assert found(store.find_by_end_range(0, MINUTE)) == [("k", 0, 50)]
    store.put(Windowed("k", 2 * MINUTE, 2 * MINUTE), "new")
    assert list(store.find_by_end_range(0, MINUTE)) == []


@BOTH
def test_expired_sessions_are_removed(home: Home, time_ordered: bool) -> None:
    lane = home.lane()
    store = lane.store(session(time_ordered=time_ordered))
    store.put(Windowed("k", 0, 50), "old")
    lane.commit(0)
    store.put(Windowed("k", 10 * MINUTE, 10 * MINUTE), "new")
    assert len(logged(lane.commit(1))["sessions"]) == 1
    assert len(list(lane.space("sessions").scan())) == (2 if time_ordered else 1)


def test_changelog_keys_are_those_of_java(home: Home) -> None:
    lane = home.lane()
    for name, time_ordered in (("plain", False), ("ordered", True)):
        lane.store(session(name, time_ordered=time_ordered)).put(Windowed("k", 3, 5), "v")
    key = b"k" + (5).to_bytes(8, "big") + (3).to_bytes(8, "big")
    assert logged(lane.commit(0)) == {"plain": {key: b"v"}, "ordered": {key: b"v"}}


def test_a_null_key_is_rejected() -> None:
    store = LaneState(MemoryEngine()).store(session())
    with pytest.raises(StateError, match="null key"):
        store.put(Windowed(None, 0, 1), "v")


@pytest.mark.parametrize("options", [{}, {"time_ordered": True}], ids=str)
def test_sessions_past_their_retention_are_found_as_long_as_their_segment_is_kept(home: Home, options: dict[str, Any]) -> None:
    store = home.lane().store(session(**options))  # kept for 120 s, in segments of 60 s
    for start, end in ((0, 59_999), (50_000, 60_000), (70_000, 80_000), (150_000, 160_000), (190_000, 200_000)):
        store.put(Windowed("k", start, end), f"{start}")
    store.put(Windowed("other", 70_000, 80_000), "other")
    assert [found.end for found, _ in store.find_sessions("k", 0, 300_000)] == [160_000, 200_000]
    assert [found.end for found, _ in store.find_kept_sessions("k", 0, 300_000)] == [60_000, 80_000, 160_000, 200_000]
    assert [found.end for found, _ in store.find_kept_sessions("k", 75_000, 160_000)] == [80_000, 160_000]
    assert list(store.find_kept_sessions("k", 0, 40_000)) == []
    assert list(store.find_kept_sessions("nobody", 0, 300_000)) == []
