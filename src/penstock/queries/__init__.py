"""Queries of the stores of a running application, answered as of its last commit."""

from __future__ import annotations

from typing import Any

from penstock.queries.committed import CommittedState, Source, pinned
from penstock.queries.pages import StoreAnswers
from penstock.queries.questions import (
    KeyQuery,
    MultiVersionedKeyQuery,
    PrefixQuery,
    QueryResult,
    RangeQuery,
    SessionQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
    answer,
)
from penstock.queries.snapshots import Scan
from penstock.queries.views import (
    KeyValueView,
    SessionView,
    TimestampedKeyValueView,
    VersionedView,
    View,
    WindowView,
    view_of,
)

__all__ = [
    "CommittedState",
    "KeyQuery",
    "KeyValueView",
    "MultiVersionedKeyQuery",
    "PrefixQuery",
    "QueryResult",
    "RangeQuery",
    "Scan",
    "SessionQuery",
    "SessionView",
    "Source",
    "StoreAnswers",
    "TimestampedKeyValueView",
    "VersionedKeyQuery",
    "VersionedView",
    "View",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "WindowView",
    "ask",
    "view",
]


def view(state: CommittedState, store: str) -> Any:
    """Return the view that fits the store's kind; every read is as of the last commit."""
    return view_of(Source(state, store))


def ask(
    state: CommittedState, store: str, query: Any, at_least_epoch: int | None = None, timeout_s: float = 10.0
) -> QueryResult[Any]:
    """Answer a query from one epoch: the last committed one. Waits up to `timeout_s` for `at_least_epoch`."""
    if at_least_epoch is not None:
        state.wait_for(at_least_epoch, timeout_s)
    with pinned(state, store) as source:
        value, is_complete = answer(query, view_of(source))
        return QueryResult(value, source.epoch, is_complete)
