"""The rows of a DataFrame, one by one; if asked for, in an order that is the same whenever they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.errors import TopologyError
from penstock.spark.context import DataFrame, SparkSession


def all_rows(session: SparkSession, read: Callable[[SparkSession], DataFrame]) -> Iterator[dict[str, Any]]:
    """Yield the rows that `read` returns, in any order."""
    for row in read(session).toLocalIterator():
        yield row.asDict(recursive=True)


def ordered_rows(
    session: SparkSession, read: Callable[[SparkSession], DataFrame], order_by: Sequence[str], skip: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows that `read` returns, without the first `skip`; raise if `order_by` does not identify them."""
    frame = read(session)
    missing = [name for name in order_by if name not in frame.columns]
    if missing:
        raise TopologyError(
            f"order_by: the DataFrame has no column {', '.join(missing)}. Its columns: {', '.join(frame.columns)}."
        )
    before: tuple[Any, ...] | None = None
    for row in frame.orderBy(*order_by).offset(skip).toLocalIterator():
        at = tuple(row[name] for name in order_by)
        if at == before:
            same = ", ".join(f"{name}={value!r}" for name, value in zip(order_by, at, strict=True))
            cure = "Add a column that tells them apart."
            raise TopologyError(f"order_by: several rows have {same}, so that their order may change. {cure}")
        before = at
        yield row.asDict(recursive=True)
