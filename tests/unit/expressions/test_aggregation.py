"""Aggregates are what a fold over the records gives, in any class, and can be subtracted and merged where that makes sense."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import agg, col
from penstock.errors import SerializationError
from penstock.expressions.agg import Aggregate
from penstock.expressions.aggregates_serde import AggregatesSerde
from penstock.expressions.aggregation import MOST_DISTINCT, STATES
from penstock.expressions.functions import Computed, Form
from penstock.expressions.nodes import Aggregate as AggregateNode
from penstock.expressions.nodes import Aggregates, Function, Node
from penstock.serdes import Json
from tests.unit.expressions.interpreter import fold
from tests.unit.expressions.trees import COLUMNS, RECORDS, TREES

ERRORS = (TypeError, ValueError, OverflowError, ZeroDivisionError)


@dataclass
class Stats:
    n: int
    total: float
    low: float | None
    name: str | None = None


class Struct(msgspec.Struct):
    total: int
    high: int | float | None


def aggregates(into: type | None = None, **named: Aggregate[Any]) -> Aggregates:
    return Aggregates(tuple((name, each.node) for name, each in named.items()), into)


def after(node: Aggregates, *records: Any) -> Any:
    found = Computed(node, Form.INITIAL)()
    for record in records:
        found = Computed(node, Form.ADD)("k", record, found)
    return found


@given(st.sampled_from(Function), COLUMNS | TREES, st.lists(RECORDS, max_size=8), st.sets(st.integers(0, 7)), st.integers(1, 3))
def test_an_aggregate_is_what_a_fold_gives_wherever_it_is_written_and_read(
    function: Function, operand: Node, records: list[Any], stored_after: set[int], most: int
) -> None:
    aggregate = AggregateNode(function, operand, most if function is Function.TOP else None)
    node = Aggregates((("x", aggregate),))
    found = Computed(node, Form.INITIAL)()
    for number, record in enumerate(records):
        with suppress(*ERRORS):
            found = Computed(node, Form.ADD)("k", record, found)
        if number in stored_after:
            found = stored(node, found)
    expected = fold(aggregate, records)
    assert (type(found["x"]), repr(found["x"])) == (type(expected), repr(expected))


def stored(node: Aggregates, results: Any) -> Any:
    """Results as a store gives them back."""
    functions = {name: part.function for name, part in node.fields if part.function in STATES}
    serde = AggregatesSerde(Json(), functions) if functions else Json()
    try:
        return serde.deserialize(serde.serialize(results))
    except SerializationError:  # text with a lone surrogate, which JSON cannot have
        assert "\\ud83d" in ascii([results, getattr(results, "states", None)])
        return results


def test_all_aggregates() -> None:
    node = aggregates(
        all=agg.count(),
        n=agg.count(col("a")),
        total=agg.sum(col("a")),
        low=agg.min(col("a")),
        high=agg.max(col("a")),
        first=agg.first(col("a")),
        last=agg.last(col("a")),
    )
    assert after(node) == {"all": 0, "n": 0, "total": 0, "low": None, "high": None, "first": None, "last": None}
    found = after(node, {"a": 3}, {}, {"a": 1}, {"a": 2}, {"a": None})
    assert found == {"all": 5, "n": 3, "total": 6, "low": 1, "high": 3, "first": 3, "last": 2}


def test_ties_keep_the_first_and_nan_is_skipped() -> None:
    node = aggregates(low=agg.min(col("a")), high=agg.max(col("a")))
    found = after(node, {"a": math.nan}, {"a": 1}, {"a": 1.0}, {"a": math.nan})
    assert [type(value) for value in found.values()] == [int, int]
    assert repr(after(node, {"a": 0.0}, {"a": -0.0})) == "{'low': 0.0, 'high': 0.0}"


def test_aggregates_of_all_values() -> None:
    node = aggregates(mean=agg.mean(col("a")), best=agg.top(col("a"), 3), different=agg.count_distinct(col("a")))
    assert after(node) == {"mean": None, "best": [], "different": 0}
    assert after(node, {}, {"a": None}) == after(node)
    found = after(node, {"a": 3}, {}, {"a": 1}, {"a": 3}, {"a": 1.0}, {"a": None})
    assert repr(found) == "{'mean': 2.0, 'best': [3, 3, 1], 'different': 2}"
    assert after(aggregates(best=agg.top(col("a"), 2)), {"a": math.nan}, {"a": 1}) == {"best": [1]}


def test_an_old_result_stays_as_it_was() -> None:
    node = aggregates(mean=agg.mean(col("a")), best=agg.top(col("a"), 3), different=agg.count_distinct(col("a")))
    old = after(node, {"a": 1})
    old["best"].append("changed by a user")
    Computed(node, Form.ADD)("k", {"a": 2}, old)
    assert Computed(node, Form.ADD)("k", {"a": 3}, old) == {"mean": 2.0, "best": [3, 1], "different": 2}


def test_a_mean_of_long_integers_is_no_error() -> None:
    found = after(aggregates(mean=agg.mean(col("a"))), *[{"a": 2**62}] * 5)
    assert found == {"mean": float(2**62)}
    assert after(aggregates(mean=agg.mean(col("a"))), {"a": 2**53}, {"a": 1}, {"a": 1}, {"a": 0}) == {"mean": (2**53 + 2) / 4}


def test_the_number_of_different_values_has_a_limit() -> None:
    node = aggregates(different=agg.count_distinct(col("a")))
    full = after(node, *({"a": number} for number in range(MOST_DISTINCT)))
    assert Computed(node, Form.ADD)("k", {"a": 0}, full) == {"different": MOST_DISTINCT}
    with pytest.raises(OverflowError, match=r"the count_distinct\(col\('a'\)\) has more than 10000 values"):
        Computed(node, Form.ADD)("k", {"a": -1}, full)
    with pytest.raises(OverflowError, match="more than 10000 values"):
        Computed(node, Form.MERGE)("k", full, after(node, {"a": -1}))


def test_text_is_compared_by_code_points() -> None:
    assert after(aggregates(high=agg.max(col("a"))), {"a": "\uffff"}, {"a": "\U00010000"}) == {"high": "\U00010000"}


@pytest.mark.parametrize(
    ("aggregate", "old", "value", "message"),
    [
        (agg.sum(col("a")), {"a": 2**63 - 1}, 1, "the sum.* has more than 64 bits"),
        (agg.sum(col("a")), {"a": -(2**63)}, -1, "has more than 64 bits"),
        (agg.sum(col("a")), {"a": 1.7e308}, 1.7e308, "is inf, which cannot be kept"),
        (agg.sum(col("a")), {"a": 1}, "x", "unsupported operand"),
        (agg.max(col("a")), {"a": 1}, 2**63, "has more than 64 bits"),
        (agg.max(col("a")), {"a": 1}, math.inf, "cannot be kept"),
        (agg.max(col("a")), {"a": 1}, "x", "not supported between"),
        (agg.max(col("a")), {"a": 1}, [1], "would be a list, not bool or int or float or str"),
        (agg.last(col("a")), {"a": 1}, math.nan, "is nan, which cannot be kept"),
        (agg.first(col("a")), {}, {"b": 1}, "would be a dict"),
        (agg.mean(col("a")), {"a": 1}, "x", "unsupported operand"),
        (agg.mean(col("a")), {"a": 1.7e308}, 1.7e308, r"the sum of the mean\(col\('a'\)\) is inf, which cannot be kept"),
        (agg.top(col("a"), 2), {"a": 1}, "x", "not supported between"),
        (agg.top(col("a"), 2), {"a": 1}, math.inf, "cannot be kept"),
        (agg.count_distinct(col("a")), {"a": 1}, math.nan, "is nan, which cannot be kept"),
        (agg.count_distinct(col("a")), {"a": 1}, [1], "would be a list"),
    ],
)
def test_a_value_that_cannot_be_aggregated_is_an_error_of_its_record(
    aggregate: Aggregate[Any], old: dict[str, Any], value: Any, message: str
) -> None:
    node = aggregates(x=aggregate)
    with pytest.raises(ERRORS, match=message):
        after(node, old, {"a": value})


def test_aggregates_in_a_class_have_the_types_of_its_fields() -> None:
    node = aggregates(Stats, n=agg.count(), total=agg.sum(col("a")), low=agg.min(col("a")))
    assert repr(after(node)) == "Stats(n=0, total=0.0, low=None, name=None)"
    assert repr(after(node, {"a": 2}, {"a": 1})) == "Stats(n=2, total=3.0, low=1.0, name=None)"


@pytest.mark.parametrize(("value", "message"), [(1.5, "would be a float, not int"), ("x", "unsupported")])
def test_a_value_that_does_not_fit_the_field_is_an_error(value: Any, message: str) -> None:
    node = aggregates(Struct, total=agg.sum(col("a")), high=agg.max(col("a")))
    assert after(node, {"a": 2}) == Struct(2, 2)
    with pytest.raises(TypeError, match=message):
        after(node, {"a": value})


@pytest.mark.parametrize("into", [None, Struct])
def test_counts_and_sums_can_be_subtracted_from(into: type | None) -> None:
    named = {"total": agg.sum(col("a")), "high": agg.count(col("a"))}
    node = aggregates(into, **named)
    found = after(node, {"a": 2}, {"a": 5}, {})
    for record in ({"a": 5}, {}, {"a": 2}):
        found = Computed(node, Form.SUBTRACT)("k", record, found)
    assert found == Computed(node, Form.INITIAL)()
    count = aggregates(n=agg.count())
    assert Computed(count, Form.SUBTRACT)("k", {}, {"n": 2}) == {"n": 1}


@pytest.mark.parametrize("into", [None, Stats])
@given(st.lists(st.fixed_dictionaries({}, optional={"a": st.integers(-5, 5)})), st.integers(0, 5))
def test_merged_aggregates_are_those_of_all_records(into: type | None, records: list[Any], cut: int) -> None:
    node = aggregates(into, n=agg.count(), total=agg.sum(col("a")), low=agg.min(col("a")))
    whole = Computed(node, Form.MERGE)("k", after(node, *records[:cut]), after(node, *records[cut:]))
    assert whole == after(node, *records)


@given(st.lists(st.fixed_dictionaries({}, optional={"a": st.integers(-5, 5)})), st.integers(0, 5))
def test_first_and_last_follow_the_order_of_merged_sessions(records: list[Any], cut: int) -> None:
    node = aggregates(
        first=agg.first(col("a")),
        last=agg.last(col("a")),
        high=agg.max(col("a")),
        n=agg.count(col("a")),
        mean=agg.mean(col("a")),
        best=agg.top(col("a"), 2),
        different=agg.count_distinct(col("a")),
    )
    whole = Computed(node, Form.MERGE)("k", after(node, *records[:cut]), after(node, *records[cut:]))
    assert whole == after(node, *records)
