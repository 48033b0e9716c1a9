"""What an expression means, written down a second time: straight from the rules, node by node, for one record."""

from __future__ import annotations

import math
from typing import Any

from penstock.expressions.nodes import (
    Aggregate,
    Arithmetic,
    Column,
    Comparison,
    Function,
    IsNull,
    Literal,
    Logic,
    Negative,
    Node,
    Not,
    Required,
    Struct,
)


def meaning(node: Node, record: Any) -> Any:
    """The value of an expression; raises if the record has an error."""
    match node:
        case Literal():
            return node.value
        case Column():
            return declared(read(record, node.path), node.of)
        case Arithmetic():
            return arithmetic(node, record)
        case Negative():
            value = meaning(node.operand, record)
            return None if value is None else number(-value)
        case Comparison():
            one = meaning(node.left, record)
            other = None if one is None else meaning(node.right, record)
            return None if one is None or other is None else compare(node.sign, one, other)
        case Logic():
            return logic(node, record)
        case Not():
            value = condition(meaning(node.operand, record))
            return None if value is None else not value
        case IsNull():
            return meaning(node.operand, record) is None
        case Required():
            value = meaning(node.operand, record)
            if value is None:
                raise ValueError("null")
            return value
        case Struct():
            return {name: meaning(part, record) for name, part in node.fields}
        case _:
            raise AssertionError(node)


def read(record: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if record is None:
            return None
        if not isinstance(record, dict):
            raise TypeError("no fields")
        record = record.get(name)
    return record


def declared(value: Any, of: type | None) -> Any:
    if of is None or value is None:
        return value
    if of is float and type(value) is int:
        return float(value)
    if type(value) is not of:
        raise TypeError("another type")
    return value


def arithmetic(node: Arithmetic, record: Any) -> Any:
    one = meaning(node.left, record)
    if one is None:
        return None
    other = meaning(node.right, record)
    if other is None:
        return None
    match node.sign:
        case "+":
            return number(one + other)
        case "-":
            return number(one - other)
        case "*":
            return number(one * other)
        case "/":
            return number(one / other)
        case "//":
            return number(one // other)
        case _:
            return number(one % other)


def number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise TypeError("no number")
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise OverflowError("int64")
    return value


def compare(sign: str, one: Any, other: Any) -> bool:
    match sign:
        case "==":
            return bool(one == other)
        case "!=":
            return bool(one != other)
        case "<":
            return bool(one < other)
        case "<=":
            return bool(one <= other)
        case ">":
            return bool(one > other)
        case _:
            return bool(one >= other)


def condition(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise TypeError("no condition")


def logic(node: Logic, record: Any) -> bool | None:
    decides = node.sign == "|"
    one = condition(meaning(node.left, record))
    if one is decides:
        return decides
    other = condition(meaning(node.right, record))
    if other is decides:
        return decides
    return None if None in (one, other) else not decides


def fold(aggregate: Aggregate, records: list[Any]) -> Any:
    """What an aggregate is after these records, in a dict; records with an error leave it as it was."""
    if aggregate.function in (Function.MEAN, Function.TOP, Function.COUNT_DISTINCT):
        return fold_values(aggregate, records)
    result: Any = 0 if aggregate.function in (Function.COUNT, Function.SUM) else None
    for record in records:
        try:
            result = step(aggregate, result, record)
        except (TypeError, OverflowError, ZeroDivisionError, ValueError):
            continue
    return result


def step(aggregate: Aggregate, old: Any, record: Any) -> Any:
    if aggregate.function is Function.COUNT and aggregate.operand is None:
        return old + 1
    assert aggregate.operand is not None
    value = meaning(aggregate.operand, record)
    if value is None:
        return old
    match aggregate.function:
        case Function.COUNT:
            return old + 1
        case Function.SUM:
            return finite(number(old + value))
        case Function.MIN | Function.MAX if isinstance(value, float) and math.isnan(value):
            return old
        case Function.MIN:
            value = finite(value)
            return value if old is None or value < old else old
        case Function.MAX:
            value = finite(value)
            return value if old is None or value > old else old
        case Function.FIRST:
            return finite(value) if old is None else old
        case _:
            return finite(value)


def fold_values(aggregate: Aggregate, records: list[Any]) -> Any:
    """The same for aggregates that follow from all their values."""
    assert aggregate.operand is not None
    values: list[Any] = []
    for record in records:
        try:
            value = meaning(aggregate.operand, record)
            if value is not None and not (aggregate.function is Function.TOP and isinstance(value, float) and math.isnan(value)):
                of_values(aggregate, [*values, value])
                values.append(value)
        except (TypeError, OverflowError, ZeroDivisionError, ValueError):
            continue
    return of_values(aggregate, values)


def of_values(aggregate: Aggregate, values: list[Any]) -> Any:
    match aggregate.function:
        case Function.MEAN:
            return added(values) / len(values) if values else None
        case Function.TOP:
            return sorted(map(finite, values), reverse=True)[: aggregate.most]
        case _:
            return len(set(map(finite, values)))


def added(values: list[Any]) -> Any:
    """The sum, one value after the other; integers beyond 64 bits are added as floats."""
    total: Any = 0
    for value in values:
        total += value
        if type(total) not in (int, float):
            raise TypeError("no number")
        total = finite(total if type(total) is float or -(2**63) <= total < 2**63 else float(total))
    return total


def finite(value: Any) -> Any:
    if type(value) not in (bool, int, float, str):
        raise TypeError("no scalar")
    if type(value) is int:
        return number(value)
    if type(value) is float and not math.isfinite(value):
        raise OverflowError("not finite")
    return value
