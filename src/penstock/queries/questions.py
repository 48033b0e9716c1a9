"""Queries as values, like Kafka Streams' interactive queries v2, and their results with the epoch they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from itertools import islice
from typing import Any, Generic, TypeVar

from penstock.errors import QueryError
from penstock.queries.views import KeyValueView, SessionView, VersionedView, View, WindowView
from penstock.timing import Instant

T = TypeVar("T")

LIMIT = 1_000
"""The most rows of a result, unless the query has another limit."""

_LATEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class QueryResult(Generic[T]):
    """A result, and the epoch of its commit; `is_complete` is False if the limit cut off rows."""

    value: T
    epoch: int
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """The value of a key in a key-value store."""

    key: Any


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """Keys and values between two keys, both inclusive, None unbounded, in the order of the keys' bytes."""

    lower: Any = None
    upper: Any = None
    reverse: bool = False
    limit: int = LIMIT


@dataclass(frozen=True, slots=True)
class PrefixQuery:
    """Keys and values whose keys' bytes start with those of `prefix`."""

    prefix: Any
    limit: int = LIMIT


@dataclass(frozen=True, slots=True)
class WindowKeyQuery:
    """Start and value of a key's windows that start between two times, both inclusive."""

    key: Any
    from_time: Instant = 0
    to_time: Instant = _LATEST
    reverse: bool = False
    limit: int = LIMIT


@dataclass(frozen=True, slots=True)
class WindowRangeQuery:
    """Windows that start between two times, of the keys between two keys; all bounds are inclusive."""

    from_time: Instant = 0
    to_time: Instant = _LATEST
    lower: Any = None
    upper: Any = None
    reverse: bool = False
    limit: int = LIMIT


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """A key's sessions that end at or after one time and start at or before another."""

    key: Any
    earliest_end: Instant = 0
    latest_start: Instant = _LATEST
    reverse: bool = False
    limit: int = LIMIT


@dataclass(frozen=True, slots=True)
class VersionedKeyQuery:
    """A key's newest version, or the one that was valid at a time."""

    key: Any
    as_of: Instant | None = None


@dataclass(frozen=True, slots=True)
class MultiVersionedKeyQuery:
    """A key's versions that were valid at any time between two times, both inclusive, oldest first."""

    key: Any
    from_time: Instant = 0
    to_time: Instant = _LATEST
    reverse: bool = False
    limit: int = LIMIT


@singledispatch
def answer(query: Any, view: View) -> tuple[Any, bool]:
    """Answer a query from a view; return the result and whether it is complete."""
    raise QueryError(f"{type(query).__name__!r} is not a query type: use one from penstock.queries, such as KeyQuery.")


@answer.register
def _(query: KeyQuery, view: View) -> tuple[Any, bool]:
    return _as(KeyValueView, view, query).get(query.key), True


@answer.register
def _(query: RangeQuery, view: View) -> tuple[Any, bool]:
    store = _as(KeyValueView, view, query)
    read = store.reverse_range if query.reverse else store.range
    return _limited(lambda: read(query.lower, query.upper), query.limit)


@answer.register
def _(query: PrefixQuery, view: View) -> tuple[Any, bool]:
    store = _as(KeyValueView, view, query)
    return _limited(lambda: store.prefix_scan(query.prefix), query.limit)


@answer.register
def _(query: WindowKeyQuery, view: View) -> tuple[Any, bool]:
    store = _as(WindowView, view, query)
    return _limited(lambda: store.fetch_range(query.key, query.from_time, query.to_time, query.reverse), query.limit)


@answer.register
def _(query: WindowRangeQuery, view: View) -> tuple[Any, bool]:
    store = _as(WindowView, view, query)
    times = (query.from_time, query.to_time)
    return _limited(lambda: store.fetch_keys(query.lower, query.upper, *times, query.reverse), query.limit)


@answer.register
def _(query: SessionQuery, view: View) -> tuple[Any, bool]:
    store = _as(SessionView, view, query)
    return _limited(lambda: store.find_sessions(query.key, query.earliest_end, query.latest_start, query.reverse), query.limit)


@answer.register
def _(query: VersionedKeyQuery, view: View) -> tuple[Any, bool]:
    return _as(VersionedView, view, query).get(query.key, query.as_of), True


@answer.register
def _(query: MultiVersionedKeyQuery, view: View) -> tuple[Any, bool]:
    store = _as(VersionedView, view, query)
    return _limited(lambda: store.history(query.key, query.from_time, query.to_time, query.reverse), query.limit)


def _as(kind: type[T], view: View, query: Any) -> T:
    if not isinstance(view, kind):
        raise QueryError(f"Store {view.name!r} cannot answer a {type(query).__name__}: its view is a {type(view).__name__}.")
    return view


def _limited(rows: Callable[[], Iterator[T]], limit: int) -> tuple[tuple[T, ...], bool]:
    if limit < 1:
        raise QueryError(f"Invalid limit {limit}: at least 1 is required.")
    found = tuple(islice(rows(), limit + 1))
    return found[:limit], len(found) <= limit
