"""Stores with a TTL: entries expire when the store's time reaches theirs plus the TTL, and are then removed."""

from __future__ import annotations

import pytest

from penstock.records import ValueAndTimestamp
from penstock.state import LaneState, ttl
from tests.unit.state.homes import Home, key_value, logged, timestamped


def stored(lane: LaneState, name: str) -> list[bytes]:
    return [key for key, _ in lane.space(name).scan()]


def test_an_entry_expires_at_its_time_plus_the_ttl(home: Home) -> None:
    store = home.lane().store(timestamped(ttl_ms=10, cached=True))
    store.put("a", 1, 100)
    store.put("b", 2, 105)
    store.observe(109)
    assert list(store.entries.all()) == [("a", (1, 100)), ("b", (2, 105))]
    store.observe(110)
    assert store.entry("a") is None
    assert "a" not in store
    assert list(store) == ["b"]
    assert store.put_if_absent("a", 3, 110) is None
    assert store.entry("a") == ValueAndTimestamp(3, 110)
    store.observe(0)
    assert list(store.reverse_all()) == [("b", 2), ("a", 3)]


def test_an_expired_put_is_hidden(home: Home) -> None:
    store = home.lane().store(timestamped(ttl_ms=10))
    store.put("a", 1, 100)
    store.put("b", 2, 90)
    assert list(store) == ["a"]


def test_a_plain_store_counts_from_the_time_of_the_put(home: Home) -> None:
    lane = home.lane()
    store = lane.store(key_value(ttl_ms=10))
    store.put("early", "0")
    store["a"] = "1"
    store.put("b", "2", 100)
    assert list(store.items()) == [("b", "2")]
    store["c"] = "3"
    store.put("b", None, 101)
    store.observe(109)
    assert list(store.items()) == [("c", "3")]
    lane.commit(0)
    store = home.lane().store(key_value(ttl_ms=10))
    assert store["c"] == "3"
    store.observe(110)
    assert store.get("c") is None


def test_expired_entries_are_removed_with_their_index(home: Home) -> None:
    lane = home.lane()
    store = lane.store(timestamped(ttl_ms=10))
    store.put("a", 1, 100)
    store.put("b", 1, 100)
    lane.commit(0)
    store.put("a", 2, 105)
    store.put("c", 2, 110)
    assert logged(lane.commit(1))["table"][b"b"] is None
    assert stored(lane, "table") == [b"a", b"c"]
    assert len(stored(lane, "table/expiry")) == 2
    lane.roll_back()
    assert store.entry("a") == ValueAndTimestamp(1, 100)
    assert list(store) == ["a", "b"]


def test_removal_is_spread_over_commits(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ttl, "_SHARE", 3)
    lane = home.lane()
    store = lane.store(key_value(ttl_ms=10))
    for number in range(10):
        store.put(f"{number}", "v", 0)
    lane.commit(0)
    store.observe(1000)
    sizes = []
    for epoch in range(1, 6):
        lane.commit(epoch)
        assert list(store) == []
        sizes.append(len(stored(lane, "kv")))
    assert sizes == [7, 4, 1, 0, 0]
