"""Aggregates over columns: what adding one record after the other gives, across epochs, or doubt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import agg, col
from penstock.expressions.aggregation import adder, initializer
from penstock.expressions.columns.aggregation import Groups, can_fold, fold, initials
from penstock.expressions.columns.documents import read
from penstock.expressions.columns.evaluation import paths_in
from penstock.expressions.columns.vectors import DoubtError
from penstock.expressions.nodes import Aggregate, Aggregates, Function
from penstock.serdes import Json
from tests.unit.expressions.columns.test_evaluation import column
from tests.unit.expressions.trees import FLOATS, INTS, SCALARS

MOST_GROUPS = 3
JSON = Json()


@dataclass
class Floats:
    n: int
    total: float
    low: float | None
    high: float | None
    earliest: float | None
    latest: float | None


class Ints(msgspec.Struct):
    n: int
    total: int
    low: int | None
    high: int | None
    earliest: int | None
    latest: int | None


ALL = {
    "n": Function.COUNT,
    "total": Function.SUM,
    "low": Function.MIN,
    "high": Function.MAX,
    "earliest": Function.FIRST,
    "latest": Function.LAST,
}
A = col("a").node
FUNCTIONS = st.sampled_from(list(ALL.values()))
SOME = st.lists(FUNCTIONS, min_size=1, max_size=4).map(
    lambda functions: Aggregates(tuple((f"f{number}", Aggregate(each, A)) for number, each in enumerate(functions)))
)
IN_A_CLASS = st.sampled_from((None, Floats, Ints)).map(
    lambda into: Aggregates(tuple((name, Aggregate(function, A)) for name, function in ALL.items()), into)
)
FINITE = st.sampled_from((0.1, 0.2, 0.3, 1e16, -1e16, 1.5, -7.25, 1e-9, 3.0)) | st.floats(-1e6, 1e6).map(lambda x: x + 0.0)
TEXTS = st.sampled_from(("", "a", "b", "ä", "\U0001f600"))
SMALL = st.integers(-50, 50)


def values_of(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[int, Any]]]:
    return st.lists(st.tuples(st.integers(0, MOST_GROUPS - 1), kind), min_size=1, max_size=12)


EPOCHS = st.one_of(*(st.lists(values_of(kind), min_size=1, max_size=3) for kind in (SMALL, FINITE, TEXTS, INTS, FLOATS, SCALARS)))
EPOCHS_WITH_NULL = (
    EPOCHS | st.lists(values_of(SMALL | st.none()), min_size=1) | st.lists(values_of(FINITE | st.none()), min_size=1)
)


def stored(node: Aggregates, states: list[Any]) -> list[Any]:
    """States as a store gives them back."""
    serde: Json[Any] = JSON if node.into is None else Json(node.into)
    return [None if state is None else serde.deserialize(serde.serialize(state)) for state in states]


def by_rows(node: Aggregates, records: list[tuple[int, bytes]], before: list[Any]) -> list[Any] | None:
    add, initial, states = adder(node), initializer(node), list(before)
    try:
        for group, document in records:
            state = states[group]
            states[group] = add(None, orjson.loads(document), initial() if state is None else state)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return None
    return states


def old_columns(node: Aggregates, before: list[Any]) -> list[list[Any]]:
    old = [None if state is None else state if node.into is None else msgspec.to_builtins(state) for state in before]
    pairs = zip(node.fields, initials(node), strict=True)
    return [[initial if state is None else state[name] for state in old] for (name, _), initial in pairs]


def by_columns(node: Aggregates, records: list[tuple[int, bytes]], before: list[Any]) -> list[Any] | None:
    """The same, of the groups that have records."""
    own = sorted({group for group, _ in records})
    numbers = np.array([own.index(group) for group, _ in records])
    try:
        frame = read(frozenset(paths_in(node)), column([document for _, document in records]))
        results = fold(node, frame, Groups(numbers, len(own)), old_columns(node, [before[group] for group in own]))
    except DoubtError:
        return None
    states = list(before)
    for group, values in zip(own, zip(*results, strict=True), strict=True):
        named = dict(zip([name for name, _ in node.fields], values, strict=True))
        states[group] = named if node.into is None else node.into(**named)
    return states


@pytest.mark.slow  # 800 examples
@given(SOME | IN_A_CLASS, EPOCHS_WITH_NULL)
@settings(max_examples=800)
def test_aggregates_are_what_rows_compute_or_in_doubt(node: Aggregates, epochs: list[list[tuple[int, Any]]]) -> None:
    before: list[Any] = [None] * MOST_GROUPS
    for epoch in epochs:
        try:
            records = [(group, orjson.dumps({} if value is None else {"a": value})) for group, value in epoch]
        except orjson.JSONEncodeError:  # a lone surrogate
            return
        expected, found = by_rows(node, records, before), by_columns(node, records, before)
        if found is not None:
            assert expected is not None, "an error that columns did not see"
            assert repr(found) == repr(expected)
        if expected is None:
            return
        before = stored(node, expected)


@pytest.mark.parametrize("into", [None, Floats])
def test_floats_are_added_one_after_the_other_from_the_old_sum_on(into: type | None) -> None:
    node = Aggregates(tuple((name, Aggregate(function, A)) for name, function in ALL.items()), into)
    numbers = [0.1 * number for number in range(200)]
    records = [(number % 3, orjson.dumps({"a": value})) for number, value in enumerate(numbers)]
    before: list[Any] = [None] * MOST_GROUPS
    for _ in range(3):
        expected, found = by_rows(node, records, before), by_columns(node, records, before)
        assert found is not None
        assert repr(found) == repr(expected)
        before = stored(node, found)


def test_a_sum_that_overflows_on_the_way_is_in_doubt() -> None:
    node = agg.sum(col("a")).node
    records = [(0, orjson.dumps({"a": value})) for value in (2**62, 2**62, -(2**62))]
    assert by_columns(Aggregates((("total", node),)), records, [None]) is None


def test_several_aggregates_may_have_operands_of_their_own() -> None:
    node = Aggregates((("n", agg.count().node), ("twice", agg.sum(col("a") * 2).node), ("names", agg.max(col("b")).node)))
    records = [(number % 2, orjson.dumps({"a": number, "b": f"name {number}"})) for number in range(9)]
    assert by_columns(node, records, [None, None]) == by_rows(node, records, [None, None])


@dataclass
class Counting:
    n: int
    made: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.n = self.n % 10


@dataclass(init=False)
class WithoutInit:
    n: int


class Slow(msgspec.Struct):
    n: float


@pytest.mark.parametrize(
    ("into", "expected"), [(Counting, False), (WithoutInit, False), (Slow, False), (Ints, True), (Floats, True)]
)
def test_only_classes_that_are_their_fields_are_created_once(into: type, expected: bool) -> None:
    assert can_fold(Aggregates((("n", agg.count().node),), into)) is expected
