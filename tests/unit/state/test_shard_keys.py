"""Which record a changelog row belongs to, for every kind of store and its real changelog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import StateError
from penstock.records import NO_HEADERS, Windowed
from penstock.serdes import Bytes, Int64, Serde, SessionWindowed, String, TimeWindowed
from penstock.state import LaneState, StoreKind, StoreSpec, memory_engine, record_key
from penstock.state.buffers import ChangeBuffer, RecordBuffer, UnjoinedBuffer, Waiting
from penstock.state.specs import RawLayout
from tests.unit.state.homes import of_stores

BY_BYTES: Serde[Any] = Bytes()
BY_NAME: Serde[Any] = String()
KEYS = [b"", b"a", b"k", b"t", b"\x00", b"key", b"\xff" * 20, b"x" * 700]


def rows_of(spec: StoreSpec, write: Callable[[Any], None]) -> list[bytes]:
    """Return the keys of the changelog rows of some writes."""
    lane = LaneState(memory_engine())
    write(lane.store(spec))
    return [key for change in of_stores(lane.commit(0)) for key in change.keys]


def spec_of(kind: StoreKind, key: Serde[Any] | None = None, **options: Any) -> StoreSpec:
    return StoreSpec("s", kind, key=key or Bytes(), value=Bytes(), **options)


Put = Callable[[Any, bytes], Any]
KEYED: dict[str, tuple[StoreSpec, Put]] = {
    "key-value": (spec_of(StoreKind.KEY_VALUE), lambda store, key: store.put(key, b"v")),
    "timestamped": (spec_of(StoreKind.TIMESTAMPED), lambda store, key: store.put(key, b"v", 5)),
    "expiring": (spec_of(StoreKind.TIMESTAMPED, ttl_ms=1_000), lambda store, key: store.put(key, b"v", 5)),
    "window": (
        spec_of(StoreKind.WINDOW, retention_ms=9_000, window_size_ms=10),
        lambda store, key: store.put(key, b"v", 5),
    ),
    "duplicates": (
        spec_of(StoreKind.WINDOW, retention_ms=9_000, window_size_ms=10, retain_duplicates=True),
        lambda store, key: [store.put(key, b"v", 5), store.put(key, b"w", 5)],
    ),
    "window by time": (
        spec_of(StoreKind.TIMESTAMPED_WINDOW, retention_ms=9_000, window_size_ms=10, time_ordered=True),
        lambda store, key: store.put(key, b"v", 5, 6),
    ),
    "session": (spec_of(StoreKind.SESSION, retention_ms=9_000), lambda store, key: store.put(Windowed(key, 5, 9), b"v")),
    "session by time": (
        spec_of(StoreKind.SESSION, retention_ms=9_000, time_ordered=True),
        lambda store, key: store.put(Windowed(key, 5, 9), b"v"),
    ),
    "versioned": (
        spec_of(StoreKind.VERSIONED, retention_ms=30_000),
        lambda store, key: [store.put(key, b"v", 5), store.put(key, b"w", 9)],
    ),
}
RAW: dict[RawLayout, Callable[[Any, bytes], None]] = {
    RawLayout.UNJOINED: lambda space, key: UnjoinedBuffer(space).add(5, True, key, b"v"),
    RawLayout.WAITING: lambda space, key: RecordBuffer(space).add(5, key, Waiting(b"v", NO_HEADERS, None)),
    RawLayout.HELD: lambda space, key: ChangeBuffer(space).put(5, key, b"new", None, 6, NO_HEADERS, None),
}


class TestRecordKey:
    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize("kind", KEYED)
    def test_a_store_of_keys_has_them_in_every_row(self, kind: str, key: bytes) -> None:
        spec, put = KEYED[kind]
        rows = rows_of(spec, lambda store: put(store, key))
        assert rows
        find = record_key(spec, BY_BYTES)
        assert {find(row) for row in rows} == {key}

    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize("layout", RAW)
    def test_a_buffer_has_the_key_of_what_it_holds(self, layout: RawLayout, key: bytes) -> None:
        spec = StoreSpec("s", StoreKind.RAW, layout=layout)
        rows = rows_of(spec, lambda space: RAW[layout](space, key))
        assert rows
        assert {record_key(spec, BY_BYTES)(row) for row in rows} == {key}

    @pytest.mark.parametrize("key", KEYS)
    def test_a_subscription_is_kept_with_the_foreign_key(self, key: bytes) -> None:
        spec = StoreSpec("s", StoreKind.RAW, layout=RawLayout.SUBSCRIPTIONS)
        assert record_key(spec, BY_BYTES)(len(key).to_bytes(4, "big") + key + b"primary") == key

    def test_a_raw_store_without_a_layout_is_rejected(self) -> None:
        with pytest.raises(StateError, match="Raw store 's' has no layout"):
            record_key(StoreSpec("s", StoreKind.RAW), BY_BYTES)


class TestWindowedKeys:
    """A windowed table's descendants (joined, filtered, suppressed) have windowed keys, but the records had plain ones."""

    WINDOWED: tuple[tuple[Serde[Any], Windowed], ...] = (
        (TimeWindowed(String(), 10), Windowed("key", 20, 30)),
        (SessionWindowed(String()), Windowed("key", 20, 25)),
    )

    @pytest.mark.parametrize(("serde", "windowed"), WINDOWED)
    def test_rows_are_kept_by_the_plain_key_they_were_counted_under(self, serde: Serde[Any], windowed: Windowed) -> None:
        spec = StoreSpec("s", StoreKind.TIMESTAMPED, key=serde, value=Int64())
        [row] = rows_of(spec, lambda store: store.put(windowed, 1, 5))
        assert record_key(spec, BY_NAME)(row) == b"key"

    @pytest.mark.parametrize(("serde", "windowed"), WINDOWED)
    def test_rows_that_were_routed_by_the_windowed_key_are_kept_by_it(self, serde: Serde[Any], windowed: Windowed) -> None:
        spec = StoreSpec("s", StoreKind.TIMESTAMPED, key=serde, value=Int64())
        [row] = rows_of(spec, lambda store: store.put(windowed, 1, 5))
        assert record_key(spec, serde)(row) == serde.serialize(windowed)

    @pytest.mark.parametrize(("serde", "windowed"), WINDOWED)
    def test_a_window_that_is_held_back_is_kept_with_its_plain_key(self, serde: Serde[Any], windowed: Windowed) -> None:
        spec = StoreSpec("s", StoreKind.RAW, key=serde, layout=RawLayout.HELD)
        rows = rows_of(spec, lambda space: RAW[RawLayout.HELD](space, serde.serialize(windowed)))
        assert {record_key(spec, BY_NAME)(row) for row in rows} == {b"key"}
