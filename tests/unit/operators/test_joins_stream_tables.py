"""Joins of a stream with a table and with a global table. Expected results are those of Kafka Streams 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ProcessingError, TopologyError
from penstock.operators.stream_tables import StreamGlobalTableJoin, StreamTableJoin, join_buffer_spec
from penstock.processor import View
from penstock.records import NO_HEADERS, ValueAndTimestamp
from penstock.serdes import String
from penstock.state import StoreKind, StoreSpec
from tests.unit.operators.join_host import MemoryHost, Out


def combine(key: Any, value: str, found: str | None) -> str:
    return f"{value}+{found}"


def fail(*record: Any) -> None:
    raise ProcessingError("downstream")


class TableJoin(MemoryHost):
    """A stream of strings that joins a table of strings: plain, or (`grace` or `versioned`) with versions."""

    def __init__(self, left: bool, grace: int | None = None, versioned: bool = False, rebind: bool = False) -> None:
        super().__init__(join_buffer_spec("buffer", key=String(), value=String()), rebind=rebind)
        self.table: dict[str, ValueAndTimestamp] = {}
        self.versions: dict[str, list[ValueAndTimestamp]] = {}
        self.views["table"] = View(self.table.get, self._as_of, versioned or grace is not None)
        self.join = StreamTableJoin("table", combine, left, grace, None if grace is None else "buffer")
        self.add("stream", self.join)

    def put(self, key: str, value: str, timestamp: int) -> None:
        self.table[key] = ValueAndTimestamp(value, timestamp)
        self.versions.setdefault(key, []).append(self.table[key])

    def stream(self, key: str | None, value: str | None, timestamp: int) -> list[Out]:
        return self.pipe("stream", key, value, timestamp)

    def _as_of(self, key: str, timestamp: int) -> ValueAndTimestamp | None:
        valid = [version for version in self.versions.get(key, ()) if version.timestamp <= timestamp]
        return max(valid, key=lambda version: version.timestamp, default=None)


@pytest.fixture(params=[False, True], ids=["bound once", "bound for every record"])
def rebind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("left", [False, True])
def test_a_record_joins_the_tables_current_value_whatever_its_time(left: bool) -> None:
    join = TableJoin(left)
    assert join.stream("a", "s", 5) == ([("a", "s+None", 5)] if left else [])
    join.put("a", "t", 100)
    assert join.stream("a", "s", 5) == [("a", "s+t", 5)]
    assert join.drops == []


@pytest.mark.parametrize("left", [False, True])
def test_null_values_are_dropped_and_null_keys_only_by_an_inner_join(left: bool) -> None:
    join = TableJoin(left)
    assert join.stream("a", None, 0) == join.stream(None, None, 0) == []
    assert join.stream(None, "s", 0) == ([(None, "s+None", 0)] if left else [])
    assert len(join.drops) == (2 if left else 3)


@pytest.mark.parametrize("left", [False, True])
def test_a_versioned_table_is_read_as_of_the_records_time(left: bool) -> None:
    join = TableJoin(left, versioned=True)
    join.put("a", "t10", 10)
    join.put("a", "t20", 20)
    assert join.stream("a", "s", 9) == ([("a", "s+None", 9)] if left else [])
    assert join.stream("a", "s", 10) == [("a", "s+t10", 10)]
    assert join.stream("a", "s", 19) == [("a", "s+t10", 19)]
    assert join.stream("a", "s", 25) == [("a", "s+t20", 25)]


def test_with_a_grace_period_records_wait_for_the_table(rebind: bool) -> None:
    join = TableJoin(left=True, grace=5, rebind=rebind)
    join.put("a", "t0", 0)
    assert join.stream("a", "s3", 3) == join.stream("b", "s3b", 3) == join.stream("a", "s3c", 3) == []
    join.put("a", "t2", 2)
    assert join.stream("a", "s8", 8) == [("a", "s3+t2", 3), ("a", "s3c+t2", 3), ("b", "s3b+None", 3)]
    assert join.stream("a", "late", 2) == [("a", "late+t2", 2)]
    assert join.stream("a", "s9", 9) == []
    assert join.stream("a", "s14", 14) == [("a", "s8+t2", 8), ("a", "s9+t2", 9)]


@pytest.mark.parametrize(("timestamp", "waits"), [(94, False), (95, True), (96, True)])
def test_a_record_waits_unless_it_is_later_than_the_grace_period(timestamp: int, waits: bool) -> None:
    join = TableJoin(left=True, grace=5)
    join.stream("x", "moves the time", 100)
    out = join.stream("a", "s", timestamp)
    if timestamp == 95:
        assert out == [("a", "s+None", 95)]  # waits, and is due
    else:
        assert (out == []) is waits


def test_without_grace_a_buffered_record_is_emitted_immediately(rebind: bool) -> None:
    join = TableJoin(left=False, grace=0, rebind=rebind)
    join.put("a", "t", 0)
    assert join.stream("a", "1", 5) == [("a", "1+t", 5)]
    assert join.stream("a", "2", 5) == [("a", "2+t", 5)]
    assert join.stream("a", "late", 4) == [("a", "late+t", 4)]


def test_records_leave_the_buffer_with_their_own_headers() -> None:
    join = TableJoin(left=True, grace=5)
    join.pipe("stream", "a", "1", 0, (("h", b"1"), ("h", None)))
    join.origin = None
    join.pipe("stream", "b", "2", 5, (("h", b"2"),))
    join.pipe("stream", "c", "3", 10)
    assert join.headers == [(("h", b"1"), ("h", None)), (("h", b"2"),)]


def test_null_keys_and_values_do_not_wait() -> None:
    join = TableJoin(left=True, grace=5)
    assert join.stream(None, "s", 0) == [(None, "s+None", 0)]
    assert join.stream("a", None, 100) == []
    assert join.stream("a", "s", 0) == []  # neither of them advanced the buffer's time
    assert join.drops == ["null join key or value"]


def test_only_a_versioned_table_can_be_joined_with_a_grace_period() -> None:
    join = TableJoin(left=True, grace=5)
    join.views["table"] = View(join.table.get, join._as_of, False)
    with pytest.raises(TopologyError, match="versioned"):
        join.stream("a", "s", 0)


def test_records_whose_emission_failed_are_emitted_again(rebind: bool) -> None:
    join = TableJoin(left=False, grace=5, rebind=rebind)
    join.go_on = True
    join.put("a", "t", 0)
    join.stream("a", "1", 0)
    join.stream("a", "2", 0)
    join.put("a", "t", 0)
    failing = StreamTableJoin("table", lambda key, value, found: {"1": "fine"}[value], False, 5, "buffer")
    process = failing.bind(join, join._collect)
    process("b", "moves the time", 5, NO_HEADERS)
    assert [out.value for out in join.take()] == ["fine"]
    assert len(join.failures) == 1
    assert join.stream("b", "again", 6) == [("a", "2+t", 0)]


def test_errors_of_the_joiner_name_the_node_and_downstream_errors_pass() -> None:
    join = TableJoin(left=True)
    broken = StreamTableJoin("table", lambda key, value, found: found.missing, True).bind(join, join._collect)
    with pytest.raises(ProcessingError, match="missing"):
        broken("a", "s", 0, NO_HEADERS)
    assert len(join.failures) == 1
    with pytest.raises(ProcessingError, match="downstream"):
        join.join.bind(join, fail)("a", "s", 0, NO_HEADERS)
    assert len(join.failures) == 1


def test_the_store_of_a_join_with_a_grace_period() -> None:
    spec = join_buffer_spec("b", key=String(), value=String())
    assert (spec.name, spec.kind, spec.cached, spec.logged) == ("b", StoreKind.RAW, False, True)


class GlobalJoin(MemoryHost):
    """A stream of strings that joins a global table by the first letter of the value, `none` by no key."""

    def __init__(self, left: bool, joiner: Any = combine) -> None:
        super().__init__(StoreSpec("global", StoreKind.TIMESTAMPED, String(), String()))
        self.join = StreamGlobalTableJoin("global", lambda _, value: None if value == "none" else value[0], joiner, left)
        self.add("stream", self.join)
        self.store("global").put("x", "X", 100)

    def stream(self, key: str | None, value: str | None) -> list[Out]:
        return self.pipe("stream", key, value, 7)


@pytest.mark.parametrize("left", [False, True])
def test_a_record_joins_the_global_tables_value_of_the_selected_key(left: bool) -> None:
    join = GlobalJoin(left)
    assert join.stream("a", "x1") == [("a", "x1+X", 7)]
    assert join.stream(None, "x1") == [(None, "x1+X", 7)]
    assert join.stream("a", "y1") == ([("a", "y1+None", 7)] if left else [])
    assert join.drops == []


@pytest.mark.parametrize("left", [False, True])
def test_a_record_without_a_selected_key_is_dropped_by_an_inner_join(left: bool) -> None:
    join = GlobalJoin(left)
    assert join.stream("a", "none") == ([("a", "none+None", 7)] if left else [])
    assert join.stream("a", None) == []
    assert len(join.drops) == (1 if left else 2)


def test_errors_of_a_global_join() -> None:
    join = GlobalJoin(left=True, joiner=lambda key, value, found: found.missing)
    with pytest.raises(ProcessingError, match="missing"):
        join.stream("a", "x1")
    with pytest.raises(ProcessingError, match="downstream"):
        GlobalJoin(left=True).join.bind(join, fail)("a", "x1", 0, NO_HEADERS)
    assert len(join.failures) == 1
