"""How tables are read by key: from their store, or computed from their parent's view."""

from __future__ import annotations

import pytest

from penstock.errors import StateError, TopologyError
from penstock.operators.tables import TableFilter, TableMapValues, TableSource, TableTransformValues
from penstock.processor import Operator, ValueTransformer
from penstock.records import ValueAndTimestamp
from tests.unit.operators.table_host import Bench, table, versioned_table


class Doubling(ValueTransformer[str, str, "str | None"]):
    def transform(self, key: str, value: str | None) -> str | None:
        return None if value is None else value * 2


FILTER = TableFilter("t", lambda key, value: len(value) > 2, False, None, False, False)
MAP = TableMapValues("t", lambda key, value: value.strip("-") or None, None, False)
TRANSFORM = TableTransformValues("t", Doubling, (), None, False)


def bench(derived: Operator, *, versioned: bool = False) -> Bench:
    store = versioned_table("t", 1000) if versioned else table("t")
    return Bench(store, table("s")).add("t", TableSource("t", False)).add("d", derived, "t")


@pytest.mark.parametrize(
    ("derived", "value", "seen"),
    [
        (FILTER, "long", "long"),
        (FILTER, "x", None),
        (MAP, "-x-", "x"),
        (MAP, "--", None),
        (TRANSFORM, "x", "xx"),
    ],
)
@pytest.mark.parametrize("versioned", [False, True])
def test_a_table_without_a_store_is_computed_from_its_parent(
    derived: Operator, value: str, seen: str | None, versioned: bool
) -> None:
    lane = bench(derived, versioned=versioned)
    lane.pipe("t", "a", value, 7)
    view = lane.view("d")
    assert view.get("a") == (None if seen is None else ValueAndTimestamp(seen, 7))
    assert view.get("b") is None
    assert view.is_versioned is versioned


@pytest.mark.parametrize("derived", [FILTER, MAP, TRANSFORM])
def test_history_is_read_through_the_parent(derived: Operator) -> None:
    lane = bench(derived, versioned=True)
    lane.pipe("t", "a", "first", 10)
    lane.pipe("t", "a", "second", 20)
    lane.pipe("t", "a", None, 30)
    as_of = lane.view("d").get_as_of
    seen = [entry and (entry.value.replace("firstfirst", "first"), entry.timestamp) for entry in (as_of("a", 5), as_of("a", 15))]
    assert seen == [None, ("first", 10)]
    assert as_of("a", 29) is not None
    assert as_of("a", 30) is None
    assert lane.view("d").get("a") is None


def test_a_negated_filter_shows_the_rest() -> None:
    lane = bench(TableFilter("t", lambda key, value: len(value) > 2, True, None, False, False))
    lane.pipe("t", "a", "x", 7)
    lane.pipe("t", "b", "long", 7)
    assert lane.view("d").get("a") == ("x", 7)
    assert lane.view("d").get("b") is None


@pytest.mark.parametrize(
    "derived",
    [
        TableFilter("t", lambda key, value: True, False, "s", False, False),
        TableMapValues("t", lambda key, value: value, "s", False),
        TableTransformValues("t", Doubling, (), "s", False),
    ],
)
def test_a_table_with_a_store_is_read_from_it(derived: Operator) -> None:
    lane = bench(derived)
    lane.pipe("t", "a", "x", 7)
    entry = lane.view("d").get("a")
    assert entry is not None
    assert (entry.value[0], entry.timestamp) == ("x", 7)
    assert lane.view("d").get("b") is None


def test_a_versioned_store_gives_plain_entries() -> None:
    lane = Bench(versioned_table("t", 1000)).add("t", TableSource("t", False))
    lane.pipe("t", "a", "x", 7)
    lane.pipe("t", "a", "y", 9)
    view = lane.view("t")
    assert view.is_versioned
    assert view.get("a") == ValueAndTimestamp("y", 9)
    assert view.get_as_of("a", 8) == ValueAndTimestamp("x", 7)
    assert view.get_as_of("a", 6) is None


def test_other_stores_have_no_history() -> None:
    lane = Bench(table("t")).add("t", TableSource("t", False))
    assert not lane.view("t").is_versioned
    with pytest.raises(StateError, match="'t' cannot be read as of a time"):
        lane.view("t").get_as_of("a", 0)


def test_a_source_without_a_store_cannot_be_read() -> None:
    with pytest.raises(TopologyError, match="t: the table is read by key and therefore needs a store"):
        Bench().add("t", TableSource(None, False)).view("t")
