"""Aggregates of grouped tables: subtract and add, timestamps, and that they equal an aggregate of the current rows."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProcessingError
from penstock.operators.table_aggregates import TableAggregate, TablePassThrough, TableReduce
from penstock.operators.tables import TableRepartitionMap, TableSource
from penstock.processor import Operator
from penstock.records import Change
from penstock.serdes import ChangeSerde, Int64, String
from penstock.state import StoreKind, StoreSpec
from tests.unit.operators.table_host import Bench, Exchange, Out, Refusing, apply, number_table, table


def zero() -> int:
    return 0


def add(key: str, value: int, total: int) -> int:
    return total + value


def subtract(key: str, value: int, total: int) -> int:
    return total - value


def plus(total: int, value: int) -> int:
    return total + value


def minus(total: int, value: int) -> int:
    return total - value


AGGREGATE = TableAggregate("s", zero, add, subtract, True)
REDUCE = TableReduce("s", plus, minus, True)
BOTH = pytest.mark.parametrize("operator", [AGGREGATE, REDUCE])


def bench(operator: Operator, *, cached: bool = False) -> Bench:
    return Bench(number_table("s", cached=cached)).add("g", operator)


@BOTH
def test_adds_and_subtracts(operator: Operator) -> None:
    lane = bench(operator)
    assert lane.pipe("g", "a", Change(5, None), 1) == [Out("a", Change(5, None), 1)]
    assert lane.pipe("g", "a", Change(3, None), 2) == [Out("a", Change(8, 5), 2)]
    assert lane.pipe("g", "a", Change(4, 3), 3) == [Out("a", Change(9, 8), 3)]
    assert lane.pipe("g", "a", Change(None, 5), 4) == [Out("a", Change(4, 9), 4)]
    assert lane.rows("s") == {"a": 4}


@BOTH
def test_its_time_never_goes_back(operator: Operator) -> None:
    lane = bench(operator)
    lane.pipe("g", "a", Change(5, None), 10)
    assert [out.timestamp for out in lane.pipe("g", "a", Change(1, None), 4)] == [10]
    assert [out.timestamp for out in lane.pipe("g", "a", Change(None, 1), 5)] == [10]
    assert [out.timestamp for out in lane.pipe("g", "a", Change(2, 5), 6)] == [10]
    assert lane.view("g").get("a") == (2, 10)


@BOTH
def test_a_change_without_effect_has_its_own_time(operator: Operator) -> None:
    lane = bench(operator)
    lane.pipe("g", "a", Change(5, None), 10)
    assert lane.pipe("g", "a", Change(None, None), 3) == [Out("a", Change(5, 5), 3)]


@BOTH
def test_nothing_is_subtracted_from_a_missing_group(operator: Operator) -> None:
    lane = bench(operator)
    assert lane.pipe("g", "a", Change(None, 5), 1) == [Out("a", Change(None, None), 1)]
    assert lane.pipe("g", "a", Change(2, 5), 2) == [Out("a", Change(2, None), 2)]


@BOTH
def test_a_group_without_a_key_fails(operator: Operator) -> None:
    with pytest.raises(ProcessingError, match="needs a key"):
        bench(operator).pipe("g", None, Change(1))


@BOTH
def test_a_failing_function_names_this_node(operator: Operator) -> None:
    lane = bench(operator)
    lane.goes_on = True
    lane.pipe("g", "a", Change(5, None), 1)
    assert lane.pipe("g", "a", Change(None, "five"), 2) == []
    assert [failure[0] for failure in lane.failures] == ["g"]
    assert lane.rows("s") == {"a": 5}


@BOTH
def test_a_failure_below_is_not_reported_by_this_node(operator: Operator) -> None:
    lane = bench(operator).add("below", Refusing(), "g")
    with pytest.raises(ProcessingError, match=r"^refused"):
        lane.pipe("g", "a", Change(1))
    assert lane.failures == []


@BOTH
def test_a_cached_aggregate_sends_one_change_per_group_and_epoch(operator: Operator) -> None:
    lane = bench(operator, cached=True)
    lane.pipe("g", "a", Change(5, None), 1)
    lane.pipe("g", "a", Change(None, 5), 2)
    lane.pipe("g", "a", Change(7, None), 3)
    assert lane.flush() == [Out("a", Change(7, None), 3)]


def test_an_aggregate_of_none_deletes_the_group() -> None:
    def remove(key: str, value: int, total: int) -> int | None:
        return total - value or None

    lane = bench(TableAggregate("s", zero, add, remove, True))
    lane.pipe("g", "a", Change(5, None), 10)
    assert lane.pipe("g", "a", Change(None, 5), 4) == [Out("a", Change(None, 5), 10)]
    assert lane.rows("s") == {}
    lane.pipe("g", "a", Change(5, None), 10)
    assert lane.pipe("g", "a", Change(2, 5), 4) == [Out("a", Change(2, 5), 10)]


def test_a_deleted_reduction_restarts_with_the_next_row() -> None:
    lane = bench(TableReduce("s", plus, lambda total, value: total - value or None, True))
    lane.pipe("g", "a", Change(5, None), 10)
    assert lane.pipe("g", "a", Change(2, 5), 4) == [Out("a", Change(2, 5), 10)]


def test_without_old_values_none_are_sent() -> None:
    lane = bench(TableReduce("s", plus, minus, False))
    lane.pipe("g", "a", Change(5, None), 1)
    assert lane.pipe("g", "a", Change(1, None), 2) == [Out("a", Change(6, None), 2)]


def test_in_a_versioned_store_it_forwards_what_the_store_accepted() -> None:
    spec = StoreSpec("s", StoreKind.VERSIONED, String(), Int64(), retention_ms=100)
    lane = Bench(spec).add("g", AGGREGATE)
    lane.pipe("g", "a", Change(5, None), 500)
    assert lane.pipe("g", "b", Change(1, None), 300) == []
    assert lane.pipe("g", "a", Change(1, None), 300) == [Out("a", Change(6, 5, True), 500)]


def test_a_cogroups_table_forwards_the_changes_of_its_parts() -> None:
    lane = Bench(table("s")).add("part", TableSource("s", True)).add("all", TablePassThrough(("part",), "s", True), "part")
    assert lane.pipe("part", "a", "1", 3) == [Out("a", Change("1", None), 3)]
    assert lane.view("all").get("a") == ("1", 3)


@pytest.mark.parametrize("operator", [AGGREGATE, REDUCE, TablePassThrough(("part",), "s", True)])
def test_operators_are_picklable_values(operator: Operator) -> None:
    assert pickle.loads(pickle.dumps(operator)) == operator


rows = st.lists(
    st.tuples(st.sampled_from("abcd"), st.none() | st.tuples(st.sampled_from("xyz"), st.integers(1, 99)), st.booleans()),
    max_size=30,
)


class Pairs(String):
    """A group and a number, as text."""

    def serialize(self, value: Any) -> bytes:
        return f"{value[0]} {value[1]}".encode()

    def deserialize(self, data: bytes) -> Any:
        group, number = data.decode().split()
        return group, int(number)


@given(rows, st.booleans(), st.booleans())
def test_groups_are_the_sums_of_their_rows(changes: list[tuple[str, Any, bool]], defers_rows: bool, defers_sums: bool) -> None:
    lane = Bench(table("t", Pairs(), cached=defers_rows), number_table("s", cached=defers_sums))
    lane.add("t", TableSource("t", True))
    lane.add("select", TableRepartitionMap(lambda key, row: row, False), "t")
    lane.add("exchange", Exchange(String(), ChangeSerde(Int64())), "select")
    lane.add("g", TableAggregate("s", zero, add, lambda key, value, total: total - value or None, False), "exchange")
    outputs: list[Out] = []
    table_rows: dict[str, tuple[str, int]] = {}
    for time, (key, row, ends_epoch) in enumerate(changes):
        outputs += lane.pipe("t", key, row, time)
        if row is None:
            table_rows.pop(key, None)
        else:
            table_rows[key] = row
        if ends_epoch:
            outputs += lane.flush()
    outputs += lane.flush()
    sums: dict[str, int] = {}
    for group, number in table_rows.values():
        sums[group] = sums.get(group, 0) + number
    assert apply({}, [Out(out.key, out.value.new, out.timestamp) for out in outputs]) == sums
    assert lane.rows("s") == sums
