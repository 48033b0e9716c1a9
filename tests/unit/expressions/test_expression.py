"""How expressions are written, and the mistakes that are found while they are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import Expression, agg, col, left, struct
from penstock.errors import TopologyError


@dataclass
class Totals:
    n: int
    total: int = 0


def test_an_expression_describes_itself_as_it_was_written() -> None:
    expression = ~((col("a", "b") + 1 > left("c")) | col("d").is_null())
    assert expression.describe() == repr(expression) == "~(((col('a', 'b') + 1) > left('c')) | col('d').is_null())"
    assert struct(into=Totals, n=-col("a", int).required()).describe() == "struct(n=-col('a', int).required(), into=Totals)"
    assert repr(agg.sum(col("a") * 2)) == "agg.sum(col('a') * 2)"


def test_equal_expressions_are_equal_and_have_the_same_hash() -> None:
    assert (col("a") + 1).equals(col("a") + 1)
    assert hash(col("a") + 1) == hash(col("a") + 1)
    assert agg.sum(col("a")) == agg.sum(col("a"))
    assert hash(agg.sum(col("a"))) == hash(agg.sum(col("a")))
    assert agg.sum(col("a")) != agg.max(col("a"))


@pytest.mark.parametrize("other", [1.0, True, 2, "1"])
def test_constants_of_different_types_are_different(other: Any) -> None:
    assert not (col("a") == 1).equals(col("a") == other)


def test_zero_and_negative_zero_are_different_constants() -> None:
    assert not (col("a") + 0.0).equals(col("a") + -0.0)


untyped_col: Any = col
untyped_sum: Any = agg.sum
"""A type checker finds most of these mistakes, too."""


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: bool(untyped_col("a") > 1), r"col\('a'\) > 1 has no truth value .* write & for and"),
        (lambda: 1 < untyped_col("a") < 5, r"has no truth value .*\(1 < col\('a'\)\) & \(col\('a'\) < 5\) for 1 < a < 5"),
        (lambda: untyped_col("a") and untyped_col("b"), "has no truth value"),
        (lambda: not untyped_col("a"), "has no truth value"),
        (lambda: untyped_col("a") > 1 & untyped_col("b"), "1 is none .*put each comparison in parentheses"),
        (lambda: 1 | untyped_col("b"), r"\| needs conditions, but 1 is none"),
        (lambda: (untyped_col("a") + 1) & untyped_col("b"), r"& needs conditions, but col\('a'\) \+ 1 is none"),
        (lambda: untyped_col("a") | 1, r"\| needs conditions, but 1 is none"),
        (lambda: ~(untyped_col("a") + 1), "~ needs conditions"),
        (lambda: ~untyped_col("a", int), "~ needs conditions"),
        (lambda: untyped_col("a") + "x", r"\+ needs numbers, but 'x' is str"),
        (lambda: untyped_col("a", str) * 2, r"\* needs numbers, but col\('a', str\) is str"),
        (lambda: (untyped_col("a") > 1) + 1, r"\+ needs numbers, but col\('a'\) > 1 is bool"),
        (lambda: operator.eq(col("a"), None), r"cannot contain None .*col\('a'\).is_null\(\)"),
        (lambda: untyped_col("a") == [1], r"cannot contain \[1\]"),
        (lambda: untyped_col("a") + 2**63, "has more than 64 bits"),
        (lambda: untyped_col("a") + float("nan"), "cannot contain NaN"),
        (lambda: untyped_col("a", list), "not <class 'list'>"),
        (lambda: untyped_col(1, "a"), "the name of each field as a str, not 1"),
        (struct, "struct needs at least one field"),
        (lambda: struct(a=struct(b=col("c"))), "cannot be part of another expression"),
        (lambda: struct(into=Totals, sum=untyped_col("a")), "Totals has no field 'sum' .*its fields are n, total"),
        (lambda: struct(into=Totals, total=untyped_col("a")), "cannot create Totals .*missing a required argument: 'n'"),
        (lambda: struct(into=int, a=untyped_col("a")), "into= is a dataclass, a msgspec.Struct or dict, not <class 'int'>"),
        (lambda: untyped_sum("amount"), r"agg.sum takes an expression such as col\('amount'\), not 'amount'"),
    ],
)  # fmt: skip
def test_a_mistake_is_found_with_its_line(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        write()
    assert Path(__file__).name in str(caught.value)


def test_an_expression_cannot_be_iterated() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(untyped_col("a"))
    assert isinstance(col("a"), Expression)
