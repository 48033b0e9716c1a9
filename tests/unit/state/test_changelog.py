"""A store rebuilt from its changelog equals the original, for every kind of store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records import Windowed
from penstock.serdes import Json
from penstock.state import LaneState, MemoryEngine, StoreKind, StoreSpec
from tests.unit.state.homes import (
    MINUTE,
    Home,
    key_value,
    of_stores,
    raw,
    session,
    timestamped,
    timestamped_window,
    versioned,
    window,
)

SPECS = {
    "raw": raw(),
    "key-value": key_value(),
    "key-value with TTL": key_value(ttl_ms=MINUTE),
    "timestamped": timestamped(),
    "cached": timestamped(cached=True),
    "cached by bytes": timestamped(cached=True, key=Json()),
    "timestamped with TTL": timestamped(ttl_ms=MINUTE),
    "window": window(),
    "time-ordered window": window(time_ordered=True),
    "duplicates": window(retain_duplicates=True),
    "timestamped window": timestamped_window(),
    "session": session(),
    "time-ordered session": session(time_ordered=True),
    "versioned": versioned(segment_interval_ms=5_000),
}
Update = tuple[str, Any, int]


def put(store: Any, spec: StoreSpec, key: str, value: Any, time: int) -> None:
    number = None if value is None else len(value)
    if spec.kind is StoreKind.RAW:
        store.put(key.encode(), None if value is None else value.encode())
    elif spec.kind is StoreKind.SESSION:
        store.put(Windowed(key, max(time - 7, 0), time), value)
    elif spec.kind is StoreKind.TIMESTAMPED_WINDOW:
        store.put(key, number, time, time + 1)
    elif spec.kind is StoreKind.VERSIONED:
        store.put(key.encode(), value, time)
    else:
        store.put(key, value, time)


def content(store: Any, spec: StoreSpec) -> Any:
    """Everything that can be read from a store."""
    if spec.kind is StoreKind.RAW:
        return list(store.scan())
    if spec.kind is StoreKind.VERSIONED:
        return list(store.all()), [list(store.history(key, 0, 10**9)) for key in (b"a", b"aa", b"b")]
    if spec.kind is StoreKind.SESSION:
        return list(store.all()), list(store.find_by_end_range(0, 10**9)), store.observed_stream_time
    if spec.kind in {StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW}:
        ranges = [list(store.fetch_range(key, 0, 10**9)) for key in ("a", "aa", "b")]
        return list(store.all()), ranges, store.observed_stream_time
    return list(store.entries.all() if spec.kind is StoreKind.TIMESTAMPED else store.all())


def run(lane: LaneState, spec: StoreSpec, epochs: Iterable[list[Update]]) -> list[Any]:
    store = lane.store(spec)
    rows = []
    for epoch, updates in enumerate(epochs):
        for key, value, time in updates:
            put(store, spec, key, value, time)
        rows.append(of_stores(lane.commit(epoch)))
    return rows


updates = st.tuples(
    st.sampled_from(["a", "aa", "b"]), st.sampled_from([None, "x", "yy"]), st.integers(0, 8).map(lambda n: n * 37_000)
)


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=20, deadline=None)
@given(epochs=st.lists(st.lists(updates, max_size=8), min_size=1, max_size=5))
def test_a_store_rebuilt_from_its_changelog_is_equal(name: str, epochs: list[list[Update]]) -> None:
    spec = SPECS[name]
    lane = LaneState(MemoryEngine())
    rows = run(lane, spec, epochs)
    rebuilt = LaneState(MemoryEngine())
    store = rebuilt.store(spec)
    for epoch in rows:
        rebuilt.restore(epoch)
    if spec.ttl_ms is not None:  # entries that expired before they were logged have advanced the time
        store.observe(lane.store(spec)._expiry.time)
    assert content(store, spec) == content(lane.store(spec), spec)
    for epoch in rows:
        rebuilt.restore(epoch, epoch=len(rows))
    assert content(store, spec) == content(lane.store(spec), spec)
    rebuilt.commit(len(rows) + 1)
    assert content(store, spec) == content(lane.store(spec), spec)


@pytest.mark.parametrize("name", SPECS)
def test_a_store_caught_up_on_an_engine_is_equal_and_usable(home: Home, name: str) -> None:
    spec = SPECS[name]
    epochs: list[list[Update]] = [
        [("a", "x", 1_000), ("aa", "yy", 2_000), ("b", "x", 2_000), ("a", "yy", 1_000)],
        [("a", None, 3_000), ("b", "yy", 1_500)],
        [("aa", "x", 61_000), ("b", "x", 65_000), ("b", None, 65_000)],
        [("a", "x", 190_000)],
    ]
    source = LaneState(MemoryEngine())
    rows = run(source, spec, epochs)
    lane = home.lane()
    run(lane, spec, epochs[:1])
    for epoch, changes in enumerate(rows):
        lane.restore(changes, epoch)
    lane = home.lane()
    store = lane.store(spec)
    assert lane.epoch == 3
    for one, other in ((lane, store), (source, source.store(spec))):
        put(other, spec, "b", "x", 190_500)
        put(other, spec, "aa", "yy", 135_000)
        one.commit(4)
    assert content(store, spec) == content(source.store(spec), spec)
