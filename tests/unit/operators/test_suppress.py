"""Suppression. Expected results are those of Kafka Streams 4.3.1 on the same input."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from penstock.errors import ProcessingError, StateError
from penstock.operators.suppress import Suppress, suppress_buffer_spec
from penstock.processor import View
from penstock.records import NO_HEADERS, Change, Headers, RecordMetadata, ValueAndTimestamp, Windowed
from penstock.serdes import SessionWindowed, String, TimeWindowed
from penstock.state import StoreKind
from penstock.timing import BufferConfig, Suppressed, max_bytes, max_records, unbounded, until_time_limit, until_window_closes
from tests.unit.operators.join_host import MemoryHost, Out


class Table(MemoryHost):
    """A suppressed table of strings; `put` sends a change with the old value."""

    def __init__(self, emission: Suppressed, grace: int = 0, key: Any = None, rebind: bool = False) -> None:
        super().__init__(suppress_buffer_spec("buffer", emission, key=key or String(), value=String()), rebind=rebind)
        self.values: dict[Any, ValueAndTimestamp] = {}
        self.views["parent"] = View(self.values.get, lambda key, timestamp: None, False)
        self.suppress = Suppress("parent", "buffer", emission, grace)
        self.add("table", self.suppress)

    def put(self, key: Any, value: str | None, timestamp: int, headers: Headers = NO_HEADERS) -> list[Out]:
        old = self.values.pop(key, None)
        if value is not None:
            self.values[key] = ValueAndTimestamp(value, timestamp)
        return self.pipe("table", key, Change(value, None if old is None else old.value), timestamp, headers)


@pytest.fixture(params=[False, True], ids=["bound once", "bound for every record"])
def rebind(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_change_is_emitted_after_its_time_limit(rebind: bool) -> None:
    table = Table(until_time_limit(10), rebind=rebind)
    assert table.put("a", "1", 0) == table.put("b", "1", 9) == []
    assert table.put("c", "1", 10) == [("a", Change("1"), 0)]
    assert table.put("c", "2", 18) == []
    assert table.put("c", "3", 19) == [("b", Change("1"), 9)]
    assert table.put("d", "1", 30) == [("c", Change("3", "2"), 19)]


def test_with_a_time_limit_of_zero_every_change_is_emitted_immediately() -> None:
    table = Table(until_time_limit(0))
    assert table.put("a", "1", 5) == [("a", Change("1"), 5)]
    assert table.put("a", None, 5) == [("a", Change(None, "1"), 5)]
    assert table.put("b", "late", 3) == [("b", Change("late"), 3)]


def test_a_later_change_replaces_the_one_held_back_and_keeps_its_place(rebind: bool) -> None:
    table = Table(until_time_limit(10), rebind=rebind)
    table.put("a", "1", 0, (("h", b"1"),))
    table.put("b", "1", 1)
    table.put("a", "2", 8, (("h", b"2"), ("n", None)))
    assert table.put("c", "1", 10) == [("a", Change("2", "1"), 8)]
    assert table.headers == [(("h", b"2"), ("n", None))]
    assert table.put("a", "3", 11) == [("b", Change("1"), 1)]


def test_changes_of_one_time_are_emitted_by_key(rebind: bool) -> None:
    table = Table(until_time_limit(10), rebind=rebind)
    for key in ("b", "ab", "c", "a"):
        table.put(key, "1", 0)
    assert [out.key for out in table.put("d", "1", 10)] == ["a", "ab", "b", "c"]


def test_tombstones_are_emitted_after_a_time_limit(rebind: bool) -> None:
    table = Table(until_time_limit(10), rebind=rebind)
    table.put("a", "1", 0)
    table.put("a", None, 1)
    assert table.put("b", "1", 10) == [("a", Change(None, "1"), 1)]


def test_a_window_is_emitted_once_when_it_closes(rebind: bool) -> None:
    table = Table(until_window_closes(), grace=5, key=TimeWindowed(String(), 10), rebind=rebind)
    first, second = Windowed("a", 0, 10), Windowed("a", 10, 20)
    assert table.put(first, "1", 3) == table.put(first, "2", 4) == table.put(second, "1", 14) == []
    assert table.put(second, "2", 15) == [(first, Change("2", "1"), 4)]
    assert table.put(second, "3", 24) == []
    assert table.put(second, "4", 25) == [(second, Change("4", "3"), 25)]


def test_windows_are_emitted_by_their_end_whatever_the_order_of_arrival(rebind: bool) -> None:
    table = Table(until_window_closes(), key=TimeWindowed(String(), 10), rebind=rebind)
    later, earlier = Windowed("a", 10, 20), Windowed("b", 0, 10)
    table.put(later, "1", 5)
    table.put(earlier, "1", 5)
    assert [out.key for out in table.put(Windowed("c", 20, 30), "1", 20)] == [earlier, later]


def test_tombstones_of_windows_are_not_emitted(rebind: bool) -> None:
    table = Table(until_window_closes(), grace=3, key=SessionWindowed(String()), rebind=rebind)
    table.put(Windowed("a", 0, 3), "1", 3)
    table.put(Windowed("a", 0, 3), None, 3)
    table.put(Windowed("a", 0, 5), "2", 5)
    assert table.put(Windowed("b", 9, 9), "1", 9) == [(Windowed("a", 0, 5), Change("2"), 5)]


def test_windows_can_have_a_time_limit_instead() -> None:
    table = Table(until_time_limit(5), key=TimeWindowed(String(), 10))
    table.put(Windowed("a", 0, 10), "1", 3)
    assert table.put(Windowed("b", 0, 10), "1", 8) == [(Windowed("a", 0, 10), Change("1"), 3)]


def test_a_buffer_over_its_record_limit_emits_the_oldest(rebind: bool) -> None:
    table = Table(until_time_limit(1000, max_records(2)), rebind=rebind)
    assert table.put("a", "1", 5) == table.put("b", "1", 4) == table.put("a", "2", 6) == []
    assert table.put("c", "1", 7) == [("b", Change("1"), 4)]
    assert table.put("d", "1", 1) == [("d", Change("1"), 1)]


def test_a_full_buffer_emits_as_many_as_needed(rebind: bool) -> None:
    table = Table(until_time_limit(1000, max_bytes(100)), rebind=rebind)
    for key in ("a", "b", "c"):
        table.put(key, "1", 0)
    assert [out.key for out in table.put("d", "x" * 60, 0)] == ["a", "b", "c"]


def test_a_buffer_of_size_zero_emits_everything(rebind: bool) -> None:
    table = Table(until_time_limit(1000, max_records(0)), rebind=rebind)
    assert table.put("a", "1", 5) == [("a", Change("1"), 5)]


# The size of a change: 8 bytes of time, its key, its new value, the prior value, the old value if that differs, and 20 bytes,
# topic and headers of its record.
@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ([("a", "xyz", ())], 8 + 1 + 3 + 20 + 2),
        ([("a", "xyz", (("name", b"value"), ("n", None)))], 8 + 1 + 3 + 20 + 2 + 4 + 5 + 1),
        ([("a", "x", ()), ("a", "yyy", ())], 8 + 1 + 1 + 3 + 20 + 2),
        ([("a", "x", ()), ("a", "yyy", ()), ("a", None, ())], 8 + 1 + 3 + 20 + 2),
    ],
)
def test_a_buffer_over_its_byte_limit_emits_the_oldest(changes: Any, size: int, rebind: bool) -> None:
    for bound, full in ((size, False), (size - 1, True)):
        table = Table(until_time_limit(1000, max_bytes(bound)), rebind=rebind)
        table.origin = None
        for key, value, headers in changes[:-1]:
            table.put(key, value, 0, headers)
            table.take()
        table.origin = RecordMetadata("in", 0, 0)
        key, value, headers = changes[-1]
        assert bool(table.put(key, value, 0, headers)) is full


def test_the_prior_value_counts_in_addition_to_the_old_one(rebind: bool) -> None:
    size = 8 + 1 + 1 + 2 + 3 + 20 + 2  # prior "1", old "22", new "333"
    for bound, full in ((size, False), (size - 1, True)):
        table = Table(until_time_limit(1000, max_bytes(bound)), rebind=rebind)
        table.values["a"] = ValueAndTimestamp("1", 0)
        table.put("a", "22", 0)
        assert bool(table.put("a", "333", 0)) is full


def test_a_full_buffer_accepts_more_after_an_emission(rebind: bool) -> None:
    table = Table(until_time_limit(10, max_records(2)), rebind=rebind)
    table.put("a", "1", 0)
    table.put("b", "1", 0)
    assert [out.key for out in table.put("c", "1", 10)] == ["a", "b"]
    assert table.put("d", "1", 11) == []


def test_a_strict_buffer_over_its_limit_is_an_error(rebind: bool) -> None:
    table = Table(until_time_limit(1000, max_records(1).shut_down_when_full()), rebind=rebind)
    table.put("a", "1", 0)
    message = r"the-node: the suppression buffer is full: 2 records \(limit 1\), 64 bytes \(limit unlimited\)"
    with pytest.raises(ProcessingError, match=message):
        table.put("b", "1", 2)
    assert isinstance(table.failures[0], StateError)


def test_a_strict_buffer_of_bytes_names_its_limit() -> None:
    table = Table(until_window_closes(unbounded().with_max_bytes(10)), key=TimeWindowed(String(), 10))
    table.go_on = True
    assert table.put(Windowed("a", 0, 10), "1", 0) == []
    assert "1 records (limit unlimited), 40 bytes (limit 10)" in str(table.failures[0])


def test_a_record_whose_emission_failed_is_emitted_again(rebind: bool) -> None:
    table = Table(until_time_limit(10), rebind=rebind)
    table.put("a", "1", 0)

    def fail(*record: Any) -> None:
        raise ProcessingError("downstream")

    with pytest.raises(ProcessingError, match="downstream"):
        table.suppress.bind(table, fail)("b", Change("1"), 10, NO_HEADERS)
    assert table.failures == []
    table.state.discard()
    assert table.put("b", "1", 11) == [("a", Change("1"), 0)]


def test_a_key_without_a_window_is_the_nodes_error() -> None:
    table = Table(until_window_closes())
    with pytest.raises(ProcessingError, match="end"):
        table.put("a", "1", 0)


def test_the_view_shows_what_downstream_has_seen(rebind: bool) -> None:
    table = Table(until_time_limit(10), rebind=rebind)
    table.values["b"] = ValueAndTimestamp("0", 0)
    view = table.suppress.view(table)
    table.put("a", "1", 0)
    table.put("b", "1", 0)
    table.put("b", "2", 1)
    assert view.get("a") is None
    assert view.get("b") == ValueAndTimestamp("0", -1)
    table.put("c", "1", 10)
    assert view.get("a") == ValueAndTimestamp("1", 0)
    assert view.get("b") == ValueAndTimestamp("2", 1)
    assert view.get("nothing") is None
    assert not view.is_versioned
    with pytest.raises(StateError, match="no versions"):
        view.get_as_of("a", 0)


def test_the_store_of_a_suppression() -> None:
    config = BufferConfig(logged=False)
    spec = suppress_buffer_spec("s", until_time_limit(1, config), key=String(), value=String())
    assert (spec.name, spec.kind, spec.cached, spec.logged) == ("s", StoreKind.RAW, False, False)
    config = unbounded().with_logging_enabled({"retention.ms": "1"})
    spec = suppress_buffer_spec("s", until_time_limit(1, config), key=String(), value=String())
    assert (spec.logged, spec.changelog_config) == (True, (("retention.ms", "1"),))


def test_the_operator_is_picklable() -> None:
    operator = Suppress("parent", "buffer", until_time_limit(1), 5)
    assert pickle.loads(pickle.dumps(operator)) == operator
