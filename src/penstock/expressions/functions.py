"""Expressions as functions that operators take: frozen values that can be called, or turned into plain functions first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

from penstock.expressions import aggregation
from penstock.expressions.nodes import Node
from penstock.expressions.rows import condition, evaluator

T = TypeVar("T")


class Form(Enum):
    """The arguments and the result of a function."""

    CONDITION = "(key, value) to whether it holds"
    VALUE = "(key, value) to a value"
    PAIR = "(key, value) to a new key and the same value"
    JOINED = "(left, right) to a value"
    JOINED_BY_KEY = "(key, left, right) to a value"
    INITIAL = "() to the first aggregate"
    ADD = "(key, value, aggregate) to an aggregate with it"
    SUBTRACT = "(key, value, aggregate) to an aggregate without it"
    MERGE = "(key, one aggregate, another) to an aggregate of both"


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression in the form that a verb calls it in."""

    node: Node
    form: Form

    def __call__(self, *arguments: Any) -> Any:
        """Compute it."""
        return plain(self)(*arguments)

    def describe(self) -> str:
        """Return the expression as text."""
        return self.node.describe()


@lru_cache(maxsize=1024)
def plain(computed: Computed) -> Callable[..., Any]:
    """Return the plain function, which saves a call per record."""
    return _PLAIN[computed.form](computed.node)


def computed_in(operator: object) -> list[Computed]:
    """Return the expressions that an operator takes, in the order of its fields."""
    return [found for value in _values(operator).values() for found in _found(value)]


def with_plain_functions(operator: T) -> T:
    """Return an operator with plain functions in the place of its expressions."""
    functions = {name: plain(value) for name, value in _values(operator).items() if isinstance(value, Computed)}
    found: Any = operator
    plain_one: T = replace(found, **functions) if functions else found
    return plain_one


def _values(operator: object) -> dict[str, Any]:
    if not is_dataclass(operator):
        return {}
    return {each.name: getattr(operator, each.name) for each in fields(operator)}


def _found(value: Any) -> list[Computed]:
    if isinstance(value, tuple):
        return [found for each in value for found in _found(each)]
    return [value] if isinstance(value, Computed) else []


def _pair(node: Node) -> Callable[..., Any]:
    evaluate = evaluator(node)
    return lambda key, value: (evaluate(key, value), value)


def _joined(node: Node) -> Callable[..., Any]:
    evaluate = evaluator(node)
    return lambda left, right: evaluate(None, (left, right))


def _joined_by_key(node: Node) -> Callable[..., Any]:
    evaluate = evaluator(node)
    return lambda key, left, right: evaluate(key, (left, right))


_PLAIN: dict[Form, Callable[[Any], Callable[..., Any]]] = {
    Form.CONDITION: condition,
    Form.VALUE: evaluator,
    Form.PAIR: _pair,
    Form.JOINED: _joined,
    Form.JOINED_BY_KEY: _joined_by_key,
    Form.INITIAL: aggregation.initializer,
    Form.ADD: aggregation.adder,
    Form.SUBTRACT: aggregation.subtractor,
    Form.MERGE: aggregation.merger,
}
