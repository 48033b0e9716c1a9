"""The rows evaluator gives what the rules say, for any expression and any record."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given

from penstock import Expression, col, left, right, struct
from penstock.expressions.functions import Computed, Form
from penstock.expressions.nodes import Node
from penstock.expressions.rows import condition, evaluator
from tests.unit.expressions.interpreter import meaning
from tests.unit.expressions.trees import RECORDS, TREES


def outcome(compute: Callable[[], Any]) -> tuple[str, Any]:
    """A value, by its type and its text, because NaN is not equal to itself and 1 equals 1.0; or that there is an error."""
    try:
        value = compute()
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return "error", None
    return type(value).__name__, repr(value)


@given(TREES, RECORDS)
def test_a_closure_gives_what_the_rules_say(tree: Node, record: Any) -> None:
    assert outcome(lambda: evaluator(tree)(None, record)) == outcome(lambda: meaning(tree, record))


@given(TREES, RECORDS)
def test_a_condition_holds_only_if_it_is_true(tree: Node, record: Any) -> None:
    def holds() -> bool:
        value = meaning(tree, record)
        if value is not None and not isinstance(value, bool):
            raise TypeError("no condition")
        return value is True

    assert outcome(lambda: condition(tree)(None, record)) == outcome(holds)


@given(TREES)
def test_an_expression_is_a_value(tree: Node) -> None:
    again = pickle.loads(pickle.dumps(tree))
    assert again == tree
    assert hash(again) == hash(tree)
    assert again.describe() == tree.describe()


def value_of(expression: Expression[Any], record: Any) -> Any:
    return Computed(expression.node, Form.VALUE)(None, record)


@pytest.mark.parametrize(
    ("expression", "record", "expected"),
    [
        (col("a") + 1, {"a": 2}, 3),
        (col("a") + 1, {}, None),
        (1 - col("a"), {"a": 2}, -1),
        (col("a") / 2, {"a": 5}, 2.5),
        (col("a") // 2, {"a": -5}, -3),
        (col("a") % 3, {"a": -5}, 1),
        (2 * -col("a"), {"a": 2}, -4),
        (10 // col("a"), {"a": 3}, 3),
        (10 % col("a"), {"a": 3}, 1),
        (9 / col("a"), {"a": 2}, 4.5),
        (3 + col("a"), {"a": 2}, 5),
        (col("a", "b") == "x", {"a": {"b": "x"}}, True),
        (col("a", "b"), {"a": None}, None),
        (col("a.b"), {"a.b": 1, "a": {"b": 2}}, 1),
        (col("a", float), {"a": 2}, 2.0),
        (col(), 5, 5),
        ((col("a") > 1) & (col("b") > 1), {"a": 0}, False),
        ((col("a") > 1) & (col("b") > 1), {"b": 0}, False),
        ((col("a") > 1) & (col("b") > 1), {"a": 2}, None),
        ((col("a") > 1) | (col("b") > 1), {"a": 2}, True),
        ((col("a") > 1) | (col("b") > 1), {"b": 2}, True),
        (col("a").is_null() | (col("a") > 5), {}, True),
        (~(col("a") > 1), {}, None),
        ((col("n") != 0) & (10 / col("n") > 2), {"n": 0}, False),
        (col("a") <= "ä", {"a": "z"}, True),
        (struct(x=col("a"), y=1), {"a": 2}, {"x": 2, "y": 1}),
    ],
)
def test_a_value(expression: Expression[Any], record: Any, expected: Any) -> None:
    found = value_of(expression, record)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("expression", "record", "error", "message"),
    [
        (col("a") + 1, {"a": 2**63 - 1}, OverflowError, r"col\('a'\) \+ 1 has more than 64 bits"),
        (col("a") * 2, {"a": "x"}, TypeError, "is a str, not a number"),
        (col("a") / col("b"), {"a": 1, "b": 0}, ZeroDivisionError, "division by zero"),
        (col("a") / col("b"), {"a": 1.0, "b": 0.0}, ZeroDivisionError, "division by zero"),
        (col("a").required(), {}, ValueError, r"col\('a'\) is null, but it is required"),
        (col("a", int), {"a": "5"}, TypeError, r"col\('a', int\) is a str"),
        (col("a", int), {"a": True}, TypeError, "is a bool"),
        (col("a", int), {"a": 1.5}, TypeError, "is a float"),
        (col("a"), [1], TypeError, "a list has no fields"),
        (col("a", "b"), {"a": "x"}, TypeError, "a str has no fields"),
        (~col("a"), {"a": 1}, TypeError, "is a int, not a condition"),
        (col("a") & col("b"), {"a": True, "b": "x"}, TypeError, r"col\('b'\) is a str, not a condition"),
        (col("a") < 1, {"a": "x"}, TypeError, "not supported"),
    ],
)
def test_an_error_of_a_record(expression: Expression[Any], record: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        value_of(expression, record)


@dataclass
class Address:
    country: str


class Customer(msgspec.Struct):
    name: str
    address: Address | None = None


class Model(pydantic.BaseModel):
    name: str


class Typed(TypedDict):
    name: str


@pytest.mark.parametrize(
    ("record", "path", "expected"),
    [
        (Customer("ann", Address("CH")), ("address", "country"), "CH"),
        (Customer("ann"), ("address", "country"), None),
        (Customer("ann"), ("name",), "ann"),
        (Model(name="ann"), ("name",), "ann"),
        (Typed(name="ann"), ("name",), "ann"),
    ],
)
def test_fields_of_objects(record: Any, path: tuple[str, ...], expected: Any) -> None:
    assert value_of(col(*path), record) == expected


def test_an_object_without_the_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="Customer has no field 'age'"):
        value_of(col("age"), Customer("ann"))


@pytest.mark.parametrize("form", [Form.JOINED, Form.JOINED_BY_KEY])
def test_both_sides_of_a_join(form: Form) -> None:
    joined = Computed(struct(total=left("amount"), name=right("name", str)).node, form)
    keys = ("k",) if form is Form.JOINED_BY_KEY else ()
    assert joined(*keys, {"amount": 5}, {"name": "ann"}) == {"total": 5, "name": "ann"}
    assert joined(*keys, {"amount": 5}, None) == {"total": 5, "name": None}


def test_a_struct_of_a_class() -> None:
    assert value_of(struct(into=Customer, name=col("a")), {"a": "ann"}) == Customer("ann")
