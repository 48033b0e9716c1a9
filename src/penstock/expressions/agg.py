"""The ready aggregates, for `agg`: `agg.count()`, `agg.sum(col("amount"))`, and so on.

Nulls are skipped. See `docs/columns.md`.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from penstock.errors import TopologyError
from penstock.errors.lines import user_line
from penstock.expressions.expression import Expression, operand
from penstock.expressions.nodes import Aggregate as AggregateNode
from penstock.expressions.nodes import Function

__all__ = ["Aggregate", "count", "count_distinct", "first", "last", "max", "mean", "min", "sum", "top"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Aggregate(Generic[T_co]):
    """A function over all records of a group, for `agg`."""

    __slots__ = ("node",)

    def __init__(self, node: AggregateNode) -> None:
        self.node: AggregateNode = node

    def describe(self) -> str:
        """Return the aggregate as text."""
        return f"agg.{self.node.describe()}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aggregate) and self.node == other.node

    def __hash__(self) -> int:
        return hash(self.node)

    def __repr__(self) -> str:
        return self.describe()


def count(values: Expression[Any] | None = None) -> Aggregate[int]:
    """The number of records, or of records for which an expression is not null.

    Example:
        >>> count(), count(Expression(operand(5)))
        (agg.count(), agg.count(5))
    """
    return Aggregate(AggregateNode(Function.COUNT, None if values is None else _operand("count", values)))


def sum(values: Expression[T]) -> Aggregate[T]:  # noqa: A001 - it is written agg.sum
    """The sum of numbers, 0 without any; floats are added in the order of processing."""
    return Aggregate(AggregateNode(Function.SUM, _operand("sum", values)))


def min(values: Expression[T]) -> Aggregate[T | None]:  # noqa: A001 - it is written agg.min
    """The smallest value; null without any. NaN is skipped, and of equal values the first is kept."""
    return Aggregate(AggregateNode(Function.MIN, _operand("min", values)))


def max(values: Expression[T]) -> Aggregate[T | None]:  # noqa: A001 - it is written agg.max
    """The largest value; null without any. NaN is skipped, and of equal values the first is kept."""
    return Aggregate(AggregateNode(Function.MAX, _operand("max", values)))


def first(values: Expression[T]) -> Aggregate[T | None]:
    """The first value that is not null, in the order of processing; null without any."""
    return Aggregate(AggregateNode(Function.FIRST, _operand("first", values)))


def last(values: Expression[T]) -> Aggregate[T | None]:
    """The last value that is not null, in the order of processing; null without any."""
    return Aggregate(AggregateNode(Function.LAST, _operand("last", values)))


def mean(values: Expression[Any]) -> Aggregate[float | None]:
    """The mean of numbers, a float; null without any.

    Example:
        >>> from penstock import StreamsBuilder, agg, col
        >>> from penstock.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> orders = builder.stream("orders").group_by_key()
        >>> table = orders.agg(average=agg.mean(col("amount")), largest=agg.top(col("amount"), 2), store="amounts")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("orders").pipe_pairs([("ann", {"amount": amount}) for amount in (1, 4, 2)])
        ...     driver.store("amounts")["ann"]
        {'average': 2.3333333333333335, 'largest': [4, 2]}
    """
    return Aggregate(AggregateNode(Function.MEAN, _operand("mean", values)))


def top(values: Expression[T], n: int) -> Aggregate[list[T]]:
    """The `n` largest values, the largest first, each as often as it occurs; of equal values the first comes first.

    Example:
        >>> top(Expression(operand(5)), 3)
        agg.top(5, 3)
    """
    if type(n) is not int or n < 1:
        raise TopologyError(f"agg.top takes how many values to keep, 1 or more, not {n!r} ({user_line()}).")
    return Aggregate(AggregateNode(Function.TOP, _operand("top", values), n))


def count_distinct(values: Expression[Any]) -> Aggregate[int]:
    """The number of different values, exactly: its store keeps each of them, up to 10,000 in a group.

    Example:
        >>> count_distinct(Expression(operand(5)))
        agg.count_distinct(5)
    """
    return Aggregate(AggregateNode(Function.COUNT_DISTINCT, _operand("count_distinct", values)))


def _operand(function: str, values: object) -> Any:
    if not isinstance(values, Expression):
        raise TopologyError(f"agg.{function} takes an expression such as col('amount'), not {values!r} ({user_line()}).")
    return operand(values)
