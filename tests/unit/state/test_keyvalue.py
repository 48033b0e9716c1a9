"""Key-value and timestamped stores on every engine, cached and not."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import SerializationError, StateError
from penstock.records import ValueAndTimestamp
from penstock.serdes import Int64, Json, String
from penstock.state import StoreKind, StoreSpec
from tests.unit.state.homes import Home, key_value, logged, timestamped


def test_a_value_is_put_read_and_deleted(home: Home) -> None:
    store = home.lane().store(key_value())
    assert store.get("a") is None
    store.put("a", "1")
    assert store.get("a") == "1"
    assert store.delete("a") == "1"
    assert store.delete("a") is None
    store.put("a", "2")
    store.put("a", None)
    assert store.get("a") is None


def test_put_if_absent_and_put_all(home: Home) -> None:
    store = home.lane().store(key_value())
    assert store.put_if_absent("a", None) is None
    assert "a" not in store
    assert store.put_if_absent("a", "1") is None
    assert store.put_if_absent("a", "2") == "1"
    store.put_all([("b", "2"), ("a", None)])
    assert list(store.items()) == [("b", "2")]


@pytest.mark.parametrize("committed", [True, False])
def test_ranges_are_inclusive_and_ordered_by_bytes(home: Home, committed: bool) -> None:
    lane = home.lane()
    store = lane.store(key_value())
    store.put_all((key, key.upper()) for key in ["b", "", "a", "ab", "ä", "c" * 600])
    if committed:
        lane.commit(0)
    everything = ["", "a", "ab", "b", "c" * 600, "ä"]
    assert [key for key, _ in store.all()] == everything
    assert [key for key, _ in store.reverse_all()] == everything[::-1]
    assert [key for key, _ in store.range("a", "b")] == ["a", "ab", "b"]
    assert [key for key, _ in store.reverse_range("a", "b")] == ["b", "ab", "a"]
    assert list(store.range("b", "a")) == []
    assert [key for key, _ in store.range(None, "a")] == ["", "a"]
    assert [key for key, _ in store.range("b", None)] == ["b", "c" * 600, "ä"]
    assert [key for key, _ in store.range("", "")] == [""]
    assert [key for key, _ in store.range(to_key="a")] == ["", "a"]
    assert [key for key, _ in store.range()] == everything
    assert [key for key, _ in store.reverse_range("b")] == ["ä", "c" * 600, "b"]
    assert [key for key, _ in store.prefix_scan("a")] == ["a", "ab"]
    assert [key for key, _ in store.prefix_scan("a", str.encode)] == ["a", "ab"]
    assert [key for key, _ in store.prefix_scan("", str.encode)] == everything
    assert list(store.prefix_scan(b"\xff\xff", bytes)) == []


def test_it_behaves_like_a_dict(home: Home) -> None:
    store = home.lane().store(key_value())
    assert not store
    store["a"] = "1"
    store["b"] = "2"
    assert store["a"] == "1"
    assert "a" in store
    assert "z" not in store
    assert list(store) == ["a", "b"]
    assert list(store.keys()) == ["a", "b"]
    assert list(store.values()) == ["1", "2"]
    assert dict(store) == {"a": "1", "b": "2"}
    assert len(store) == 2
    assert store
    assert store.pop("a") == "1"
    assert store.pop("a", "none") == "none"
    with pytest.raises(KeyError):
        store.pop("a")
    with pytest.raises(KeyError):
        store["a"]
    with pytest.raises(KeyError):
        del store["a"]
    del store["b"]
    assert list(store) == []


def test_a_null_key_is_rejected(home: Home) -> None:
    lane = home.lane()
    for spec in (key_value(), timestamped("plain"), timestamped("cached", cached=True)):
        with pytest.raises(StateError, match="null key"):
            lane.store(spec).get(None)
    with pytest.raises(StateError, match="null key"):
        lane.store(timestamped("cached", cached=True)).put(None, 1, 1)


def test_scans_see_uncommitted_writes_over_stored_entries(home: Home) -> None:
    lane = home.lane()
    store = lane.store(key_value())
    store.put_all((f"{number:03d}", "old") for number in range(0, 200, 2))
    lane.commit(0)
    store.put_all((f"{number:03d}", "new") for number in range(0, 200, 3))
    store.put_all((f"{number:03d}", None) for number in range(0, 200, 10))
    expected = {f"{number:03d}": "old" for number in range(0, 200, 2)} | {f"{n:03d}": "new" for n in range(0, 200, 3)}
    expected = {key: value for key, value in expected.items() if int(key) % 10}
    assert list(store.all()) == sorted(expected.items())
    assert list(store.reverse_all()) == sorted(expected.items(), reverse=True)
    store.put("0005", "late")
    assert "0005" in dict(store.range("000", "001"))


def test_a_scan_survives_writes_during_it(home: Home) -> None:
    lane = home.lane()
    store = lane.store(key_value())
    store.put_all((f"{number:03d}", "1") for number in range(50))
    seen = []
    for key in store:
        seen.append(key)
        store.put(key, None)
        store.put(f"{key}x", "2")
        assert f"{key}x" in dict(store.range(key, f"{key}x"))
    assert [key for key in seen if not key.endswith("x")] == [f"{number:03d}" for number in range(50)]
    assert list(store)[:2] == ["000x", "001x"]


def test_approximate_num_entries_includes_uncommitted_writes(home: Home) -> None:
    lane = home.lane()
    store, table = lane.store(key_value()), lane.store(timestamped(cached=True))
    store.put_all([("a", "1"), ("b", "1"), ("c", None)])
    table.put("a", 1, 1)
    assert (store.approximate_num_entries(), table.approximate_num_entries()) == (2, 1)
    lane.commit(0)
    store.put_all([("a", "2"), ("b", None), ("c", "1"), ("d", "1")])
    assert store.approximate_num_entries() == 3


@pytest.mark.parametrize("options", [{}, {"cached": True}, {"cached": True, "key": Json()}], ids=str)
def test_a_timestamped_store_keeps_values_with_their_times(home: Home, options: dict[str, Any]) -> None:
    lane = home.lane()
    store = lane.store(timestamped(**options))
    assert store.entry("a") is None
    store.put("a", {"n": 1}, 5)
    assert store.get("a") == {"n": 1}
    assert store.entry("a") == ValueAndTimestamp({"n": 1}, 5)
    assert store["a"] == {"n": 1}
    assert "a" in store
    assert store.put_if_absent("a", {"n": 2}, 6) == ValueAndTimestamp({"n": 1}, 5)
    assert store.put_if_absent("b", {"n": 2}, 6) is None
    assert store.put_if_absent("c", None, 6) is None
    store.put_all([("d", {"n": 4}, 7), ("e", {"n": 5}, 8)])
    assert list(store.all()) == [("a", {"n": 1}), ("b", {"n": 2}), ("d", {"n": 4}), ("e", {"n": 5})]
    assert [key for key, _ in store.reverse_range("b", "d")] == ["d", "b"]
    assert list(store.entries.range("d", None)) == [("d", ({"n": 4}, 7)), ("e", ({"n": 5}, 8))]
    assert store.entries.get("d") == ValueAndTimestamp({"n": 4}, 7)
    assert ("d" in store.entries, "z" in store.entries, store.entries.get("z")) == (True, False, None)
    assert list(store.values()) == [{"n": 1}, {"n": 2}, {"n": 4}, {"n": 5}]
    assert next(store.entries.values()) == ({"n": 1}, 5)
    with pytest.raises(TypeError, match=r"put\(key, value, timestamp\)"):
        store["a"] = {"n": 9}
    assert store.delete("d") == ValueAndTimestamp({"n": 4}, 7)
    assert store.delete("d") is None
    store.put("e", None, 9)
    assert "e" not in store
    assert len(store) == 2
    lane.commit(0)
    store = home.lane().store(timestamped(**options))
    assert store.entry("b") == ValueAndTimestamp({"n": 2}, 6)
    assert list(store) == ["a", "b"]


def test_timestamped_bytes_are_those_of_java(home: Home) -> None:
    lane = home.lane()
    spec = StoreSpec("t", StoreKind.TIMESTAMPED, key=String(), value=Int64(), cached=True)
    lane.store(spec).put("k", 258, 7)
    rows = logged(lane.commit(0))
    assert rows == {"t": {b"k": bytes.fromhex("0000000000000007" + "0000000000000102")}}


class Counting(Json):
    """Counts the values it serializes."""

    made = 0

    @property
    def serialize(self) -> Any:
        write = Json().serialize

        def counted(value: Any) -> bytes:
            Counting.made += 1
            return write(value)

        return counted


@pytest.fixture(autouse=True)
def _count_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "made", 0)


def test_a_cached_store_serializes_a_key_once(home: Home) -> None:
    lane = home.lane()
    store = lane.store(timestamped(value=Counting(), cached=True))
    for number in range(10):
        store.put("k", number, number)
    assert store.get("k") == 9
    assert Counting.made == 0
    lane.commit(0)
    assert Counting.made == 1
    assert store.get("k") == 9


def test_a_scan_of_a_cached_store_serializes_puts_since_the_last_scan(home: Home) -> None:
    store = home.lane().store(timestamped(value=Counting(), cached=True))
    for number in range(10):
        store.put(f"{number}", number, number)
    assert store.entries.get("3") == (3, 3)
    assert Counting.made == 0
    for _ in range(3):
        assert len(store) == 10
    assert Counting.made == 10
    store.put("3", 30, 30)
    store.put("9", 90, 90)
    store.put("new", 1, 1)
    # An aggregate changes the held entries directly, without calling put.
    store.held["4"] = (40, 40, *store.held.pop("4")[2:])
    store.put("5", None, 50)
    for _ in range(3):
        assert list(store.values()) == [0, 1, 2, 30, 40, 6, 7, 8, 90, 1]
    assert Counting.made == 14
    store.settle()
    store.put("3", 31, 31)
    assert dict(store.range("3", "3")) == {"3": 31}


def test_old_values_are_those_before_the_first_put_even_after_scans(home: Home) -> None:
    sent: list[Any] = []
    lane = home.lane()
    store = lane.store(timestamped(cached=True))
    store.put("a", 1, 1)
    store.put("b", 1, 1)
    lane.commit(0)
    for number in (2, 3, 4):
        store.put("a", number, number)
        assert dict(store)["a"] == number
        assert len(store) == 2
    store.put("b", 5, 5)
    store.flush(lambda *record: sent.append(record), True)
    assert sent == [("a", (4, 1, True), 4, ()), ("b", (5, 1, True), 5, ())]


@pytest.mark.parametrize("key", [String(), Json()], ids=["distinguished by the key", "distinguished by its bytes"])
def test_a_value_that_cannot_be_serialized_at_the_flush_names_its_key(home: Home, key: Any) -> None:
    lane = home.lane()
    store = lane.store(timestamped(cached=True, key=key, value=Int64()))
    store.put("good", 1, 1)
    store.put("bad", "1", 2)
    store.put("later", 1, 3)
    with pytest.raises(SerializationError, match="store 'table', key 'bad'"):
        len(store)
    with pytest.raises(SerializationError, match="store 'table', key 'bad'") as raised:
        lane.commit(0)
    assert raised.value.__cause__ is not None
    store.put("bad", 2, 2)
    assert dict(store) == {"good": 1, "bad": 2, "later": 1}


def test_a_value_that_can_change_is_serialized_when_it_is_put(home: Home) -> None:
    store = home.lane().store(timestamped(cached=True))
    store.put("a", [1], 1)
    with pytest.raises(SerializationError):
        store.put("a", [object()], 2)
    assert store.entry("a") == ([1], 1)


@pytest.mark.parametrize("key", [String(), Json()], ids=["distinguished by the key", "distinguished by its bytes"])
@pytest.mark.parametrize("send_old_values", [True, False])
def test_a_cached_store_forwards_the_last_value_of_each_key(home: Home, key: Any, send_old_values: bool) -> None:
    sent: list[Any] = []

    def forward(*record: Any) -> None:
        sent.append(record)

    lane, headers = home.lane(), (("trace", b"1"),)
    store = lane.store(timestamped(cached=True, key=key))
    store.hold("a", [1], 1, (), 1)
    store.hold("b", [1], 2, (), 2)
    store.hold("a", [1, 2], 3, headers, 4)
    store.hold("c", [1], 5, (), 5)
    store.hold("c", None, 6, (), 6)
    store.flush(forward, send_old_values)
    assert sent == [("b", ([1], None, True), 2, ()), ("a", ([1, 2], None, True), 3, headers)]
    assert store.held == {}
    sent.clear()
    store.flush(forward, send_old_values)
    assert sent == []
    value = store.get("a")
    value.append(3)
    store.hold("a", value, 7, (), 7)
    store.hold("b", None, 8, headers, 9)
    assert list(store.entries.all()) == [("a", ([1, 2, 3], 7))]
    assert ("a" in store, "b" in store, store.approximate_num_entries()) == (True, False, 1)
    value.append(4)  # the store has what was put, not the object
    store.flush(forward, send_old_values)
    old: Any = ([1, 2], [1]) if send_old_values else (None, None)
    assert sent == [("a", ([1, 2, 3], old[0], True), 7, ()), ("b", (None, old[1], True), 9, headers)]
    sent[0][1].new.append(5)
    lane.commit(0)
    assert list(store.entries.all()) == [("a", ([1, 2, 3], 7))]


def test_a_cached_store_discards_held_entries_with_the_epoch(home: Home) -> None:
    lane = home.lane()
    store = lane.store(timestamped(cached=True))
    store.put("a", 1, 1)
    lane.commit(0)
    store.put("a", 2, 2)
    assert list(store.all()) == [("a", 2)]
    store.put("b", 2, 2)
    lane.discard()
    assert store.entry("a") == (1, 1)
    assert store.get("b") is None


def test_a_deletion_from_a_cached_store_returns_the_old_value(home: Home) -> None:
    store = home.lane().store(timestamped(cached=True))
    assert store.delete("a") is None
    store.put("a", 1, 5)
    assert store.delete("a") == (1, 5)
    assert store.entry("a") is None


def test_a_cached_store_can_be_settled_at_any_time(home: Home) -> None:
    lane = home.lane()
    store = lane.store(timestamped(cached=True))
    store.put("a", 1, 1)
    store.settle()
    store.put("b", 2, 2)
    store.put("a", None, 3)
    store.settle()
    store.settle()
    assert list(store.entries.all()) == [("b", (2, 2))]
    assert logged(lane.commit(0))["table"].keys() == {b"b"}


def test_an_invalid_specification_is_rejected() -> None:
    with pytest.raises(StateError, match="name"):
        key_value("a/b")
    with pytest.raises(StateError, match="name"):
        key_value("")
    with pytest.raises(StateError, match="serde"):
        StoreSpec("s", StoreKind.KEY_VALUE)
    with pytest.raises(StateError, match="retention"):
        StoreSpec("s", StoreKind.SESSION, key=String(), value=String())
    with pytest.raises(StateError, match="window size"):
        StoreSpec("s", StoreKind.WINDOW, key=String(), value=String(), retention_ms=1)
    with pytest.raises(StateError, match="TTL"):
        key_value(ttl_ms=0)
    with pytest.raises(StateError, match="TTL"):
        StoreSpec("s", StoreKind.SESSION, key=String(), value=String(), retention_ms=1, ttl_ms=1)


@pytest.mark.parametrize(
    ("retention", "interval"),
    [(0, 2_000), (60_000, 20_000), (60_001, 20_000), (300_000, 60_000), (3_600_000, 300_000), (86_400_000, 3_600_000)],
)
def test_segments_of_versioned_stores_are_as_in_kafka_streams(retention: int, interval: int) -> None:
    spec = StoreSpec("s", StoreKind.VERSIONED, key=String(), value=String(), retention_ms=retention)
    assert spec.segment_ms == interval


def test_segments_of_window_stores_are_as_in_kafka_streams() -> None:
    def interval(retention: int, **options: Any) -> int:
        spec = StoreSpec("s", StoreKind.SESSION, key=String(), value=String(), retention_ms=retention, **options)
        return spec.segment_ms

    assert interval(1) == 60_000
    assert interval(200_000) == 100_000
    assert interval(200_000, segment_interval_ms=7) == 7
