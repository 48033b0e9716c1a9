"""The rows evaluator: an expression as one closure of a key and a record. What it returns or raises is what expressions mean."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from penstock.expressions.nodes import (
    Arithmetic,
    Column,
    Comparison,
    IsNull,
    Literal,
    Logic,
    Negative,
    Node,
    Not,
    Required,
    Side,
    Struct,
)
from penstock.expressions.types import FIRST_INT64, LAST_INT64, field_names

Evaluate = Callable[[Any, Any], Any]
"""`evaluate(key, row)`: the value of an expression; a row is a record's value, or the two values of a join."""

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
COMPARISON: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FIELDS: dict[type, frozenset[str] | None] = {}


def evaluator(node: Node) -> Evaluate:
    """Return the function that computes an expression."""
    return _EVALUATORS[type(node)](node)


def condition(node: Node) -> Evaluate:
    """Return the function that computes a condition: False for null, and an error for what is no condition."""
    evaluate, text = evaluator(node), node.describe()

    def holds(key: Any, row: Any) -> bool:
        found = evaluate(key, row)
        return found is True or (found is not False and _no_condition(found, text))

    return holds


def checked_number(value: Any, text: str) -> Any:
    """Return the result of arithmetic; raise if it is no number, or an integer of more than 64 bits."""
    kind = type(value)
    if kind is float:
        return value
    if kind is not int:
        raise TypeError(f"{text} is a {kind.__name__}, not a number")
    if not FIRST_INT64 <= value <= LAST_INT64:
        raise OverflowError(f"{text} has more than 64 bits")
    return value


def _column(node: Column) -> Evaluate:
    read = _path(node.path)
    if node.side is not Side.VALUE:
        read = _of_side(read, 0 if node.side is Side.LEFT else 1)
    return read if node.of is None else _declared(read, node.of, node.describe())


def _path(path: tuple[str, ...]) -> Evaluate:
    if not path:
        return lambda key, row: row
    *above, name = path
    if above:
        outer = _path(tuple(above))
        return lambda key, row: _field(outer(key, row), name)

    def read(key: Any, row: Any) -> Any:
        return row.get(name) if type(row) is dict else _field(row, name)

    return read


def _field(value: Any, name: str) -> Any:
    """Return a field of a dict or of an object; null has none, so all its fields are null."""
    if isinstance(value, dict):
        return value.get(name)
    if value is None:
        return None
    kind = type(value)
    if kind not in _FIELDS:
        names = field_names(kind)
        _FIELDS[kind] = None if names is None else frozenset(names)
    known = _FIELDS[kind]
    if known is None:
        raise TypeError(f"a {kind.__name__} has no fields, so {name!r} cannot be read from it")
    if name not in known:
        raise TypeError(f"{kind.__name__} has no field {name!r}")
    return getattr(value, name)


def _of_side(read: Evaluate, side: int) -> Evaluate:
    return lambda key, row: read(key, row[side])


def _declared(read: Evaluate, of: type, text: str) -> Evaluate:
    def typed(key: Any, row: Any) -> Any:
        value = read(key, row)
        kind = type(value)
        if kind is of or value is None:
            return value
        if of is float and kind is int:
            return float(value)
        raise TypeError(f"{text} is a {kind.__name__}")

    return typed


def _literal(node: Literal) -> Evaluate:
    value = node.value
    return lambda key, row: value


def _arithmetic(node: Arithmetic) -> Evaluate:
    left, right, compute, text = evaluator(node.left), evaluator(node.right), _ARITHMETIC[node.sign], node.describe()

    def evaluate(key: Any, row: Any) -> Any:
        one = left(key, row)
        if one is None:
            return None
        other = right(key, row)
        return None if other is None else checked_number(compute(one, other), text)

    return evaluate


def _negative(node: Negative) -> Evaluate:
    operand, text = evaluator(node.operand), node.describe()

    def evaluate(key: Any, row: Any) -> Any:
        value = operand(key, row)
        return None if value is None else checked_number(-value, text)

    return evaluate


def _comparison(node: Comparison) -> Evaluate:
    left, right, compare = evaluator(node.left), evaluator(node.right), COMPARISON[node.sign]
    if isinstance(node.right, Literal):
        constant = node.right.value

        def with_constant(key: Any, row: Any) -> Any:
            value = left(key, row)
            return None if value is None else compare(value, constant)

        return with_constant

    def evaluate(key: Any, row: Any) -> Any:
        one = left(key, row)
        if one is None:
            return None
        other = right(key, row)
        return None if other is None else compare(one, other)

    return evaluate


def _logic(node: Logic) -> Evaluate:
    """Return the function of `&` or `|`: one operand may decide alone, and then the right one is not computed."""
    left, right = evaluator(node.left), evaluator(node.right)
    one_text, other_text = node.left.describe(), node.right.describe()
    decisive: bool = node.sign == "|"

    def evaluate(key: Any, row: Any) -> Any:
        one = left(key, row)
        if one is decisive:
            return decisive  # without the other
        if type(one) is not bool and one is not None:
            _no_condition(one, one_text)
        other = right(key, row)
        if other is decisive:
            return decisive
        if type(other) is not bool and other is not None:
            _no_condition(other, other_text)
        return None if one is None or other is None else not decisive

    return evaluate


def _not(node: Not) -> Evaluate:
    operand, text = evaluator(node.operand), node.operand.describe()

    def evaluate(key: Any, row: Any) -> bool | None:
        value = operand(key, row)
        if value is True or value is False:
            return not value
        _no_condition(value, text)
        return None

    return evaluate


def _no_condition(value: Any, text: str) -> bool:
    """Return False for null; raise for any other value that is neither true nor false."""
    if value is None:
        return False
    raise TypeError(f"{text} is a {type(value).__name__}, not a condition")


def _is_null(node: IsNull) -> Evaluate:
    operand = evaluator(node.operand)
    return lambda key, row: operand(key, row) is None


def _required(node: Required) -> Evaluate:
    operand, text = evaluator(node.operand), node.operand.describe()

    def evaluate(key: Any, row: Any) -> Any:
        value = operand(key, row)
        if value is None:
            raise ValueError(f"{text} is null, but it is required")
        return value

    return evaluate


def _struct(node: Struct) -> Evaluate:
    parts = [(name, evaluator(part)) for name, part in node.fields]
    into = node.into
    if into is None:
        return lambda key, row: {name: part(key, row) for name, part in parts}
    return lambda key, row: into(**{name: part(key, row) for name, part in parts})


_EVALUATORS: dict[type[Node], Callable[[Any], Evaluate]] = {
    Column: _column,
    Literal: _literal,
    Arithmetic: _arithmetic,
    Negative: _negative,
    Comparison: _comparison,
    Logic: _logic,
    Not: _not,
    IsNull: _is_null,
    Required: _required,
    Struct: _struct,
}
