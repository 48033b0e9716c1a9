"""Expressions over columns: the value of an expression for many records, or `DoubtError`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.expressions.columns.frames import Frame, Path
from penstock.expressions.columns.vectors import (
    DoubtError,
    Vector,
    as_exact_floats,
    as_floats,
    bounds,
    constant,
    nulls,
)
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
from penstock.expressions.rows import COMPARISON
from penstock.expressions.types import FIRST_INT64, LAST_INT64

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
}
_DIVISION = frozenset({"/", "//", "%"})
_NUMBERS = frozenset({int, float})


def evaluate(node: Node, frame: Frame) -> Vector:
    """Return the value of an expression for each record."""
    found: Vector = _EVALUATORS[type(node)](node, frame)
    return found


def holds(node: Node, frame: Frame) -> Any:
    """Return for each record whether a condition holds; false for null."""
    found = _condition(evaluate(node, frame))
    return found.values if found.valid is None else found.values & found.valid


def replaced(node: Node, frame: Frame) -> Frame:
    """Return the records with another value: that of an expression."""
    if isinstance(node, Struct):
        return Frame(frame.size, None, {(name,): evaluate(part, frame) for name, part in node.fields})
    return Frame(frame.size, None, {(): evaluate(node, frame)})


def is_supported(node: Node) -> bool:
    """Whether an expression can be computed at all; what records have may still raise `DoubtError`."""
    if isinstance(node, Struct):
        return node.into is None and all(is_supported(part) for part in node.parts)
    parts = list(node.walk())
    return all(type(part) in _EVALUATORS and getattr(part, "side", Side.VALUE) is Side.VALUE for part in parts)


def paths_in(node: Node) -> set[Path]:
    """Return the fields that an expression reads."""
    return {part.path for part in node.walk() if isinstance(part, Column)}


def _column(node: Column, frame: Frame) -> Vector:
    return frame.column(node.path, node.of)


def _literal(node: Literal, frame: Frame) -> Vector:
    return constant(node.value, frame.size)


def _arithmetic(node: Arithmetic, frame: Frame) -> Vector:
    one, other = evaluate(node.left, frame), evaluate(node.right, frame)
    if one.kind is None or other.kind is None:
        return nulls(frame.size)
    if one.kind not in _NUMBERS or other.kind not in _NUMBERS:
        raise DoubtError("arithmetic of what are no numbers")
    valid = _both_valid(one, other)
    if node.sign in _DIVISION and not _where(other.values, valid).all():
        raise DoubtError("division by zero")
    if one.kind is other.kind is int and node.sign != "/":
        _refuse_overflow(node.sign, one, other, valid)
        kind: type = int
    else:
        convert = as_exact_floats if node.sign == "/" and one.kind is other.kind is int else as_floats
        one, other, kind = convert(one), convert(other), float
        if node.sign in ("//", "%") and not (np.isfinite(one.known).all() and np.isfinite(other.known).all()):
            raise DoubtError("a remainder of infinity")
    with np.errstate(all="ignore"):
        return Vector(kind, _ARITHMETIC[node.sign](one.values, other.values), valid)


def _refuse_overflow(sign: str, one: Vector, other: Vector, valid: Any) -> None:
    """Raise if integers might leave 64 bits, judged by the smallest and largest of them."""
    (low, high), (least, most) = bounds(one), bounds(other)
    if sign == "+":
        extremes = [low + least, high + most]
    elif sign == "-":
        extremes = [low - most, high - least]
    elif sign == "*":
        extremes = [low * least, low * most, high * least, high * most]
    else:
        extremes = [-low] if least <= -1 else []
    if any(not FIRST_INT64 <= extreme <= LAST_INT64 for extreme in extremes):
        raise DoubtError("possibly an integer of more than 64 bits")


def _negative(node: Negative, frame: Frame) -> Vector:
    operand = evaluate(node.operand, frame)
    if operand.kind is None:
        return operand
    if operand.kind not in _NUMBERS or (operand.kind is int and bounds(operand)[0] == FIRST_INT64):
        raise DoubtError("no number, or one without an opposite")
    return operand._replace(values=-operand.values)


def _comparison(node: Comparison, frame: Frame) -> Vector:
    one, other = evaluate(node.left, frame), evaluate(node.right, frame)
    if one.kind is None or other.kind is None:
        return nulls(frame.size)
    if one.kind is not other.kind:
        if one.kind not in _NUMBERS or other.kind not in _NUMBERS:
            raise DoubtError("a comparison of different types")
        one, other = as_exact_floats(one), as_exact_floats(other)
    valid = _both_valid(one, other)
    if one.kind is str and valid is not None:  # an object array has None in the place of nulls, which cannot be compared
        values = np.zeros(frame.size, bool)
        values[valid] = COMPARISON[node.sign](one.values[valid], other.values[valid])
        return Vector(bool, values, valid)
    return Vector(bool, COMPARISON[node.sign](one.values, other.values).astype(bool, copy=False), valid)


def _logic(node: Logic, frame: Frame) -> Vector:
    """Return `&` or `|`: the right side is computed only for records that the left one does not decide."""
    decisive = node.sign == "|"
    one = _condition(evaluate(node.left, frame))
    decided = (one.values == decisive) & one.are_known
    if decided.all():
        return constant(decisive, frame.size)
    if decided.any():
        right = _condition(evaluate(node.right, frame.where(~decided)))
        values, known = np.full(frame.size, decisive), np.ones(frame.size, bool)
        values[~decided], known[~decided] = right.values, right.are_known
    else:
        right = _condition(evaluate(node.right, frame))
        values, known = right.values, right.are_known
    by_right = (values == decisive) & known
    return Vector(bool, np.where(by_right, decisive, not decisive), by_right | (one.are_known & known))


def _not(node: Not, frame: Frame) -> Vector:
    operand = _condition(evaluate(node.operand, frame))
    return operand._replace(values=~operand.values)


def _condition(found: Vector) -> Vector:
    if found.kind is None:
        return found._replace(kind=bool)
    if found.kind is not bool:
        raise DoubtError("no condition")
    return found


def _is_null(node: IsNull, frame: Frame) -> Vector:
    return Vector(bool, ~evaluate(node.operand, frame).are_known)


def _required(node: Required, frame: Frame) -> Vector:
    operand = evaluate(node.operand, frame)
    if not operand.are_known.all():
        raise DoubtError("null, where a value is required")
    return operand


def _both_valid(one: Vector, other: Vector) -> Any:
    if one.valid is None:
        return other.valid
    return one.valid if other.valid is None else one.valid & other.valid


def _where(values: Any, valid: Any) -> Any:
    return values if valid is None else values[valid]


_EVALUATORS: dict[type[Node], Callable[[Any, Frame], Vector]] = {
    Column: _column,
    Literal: _literal,
    Arithmetic: _arithmetic,
    Negative: _negative,
    Comparison: _comparison,
    Logic: _logic,
    Not: _not,
    IsNull: _is_null,
    Required: _required,
}
