"""Aggregations of grouped streams per window, and what the kind of window decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.dsl.aggregations import (
    Group,
    aggregated,
    kept_as,
    merging,
    nothing,
    ready_aggregates,
    reducing,
)
from penstock.dsl.annotations import aggregate_made, value_kept
from penstock.dsl.draft import Draft
from penstock.dsl.stores import Materialized, Store
from penstock.dsl.table_drafts import TablePlace
from penstock.errors import TopologyError
from penstock.expressions.functions import Computed, Form
from penstock.operators.counts import one_more, sum_of_counts, zero
from penstock.operators.sessions import SessionAggregate
from penstock.operators.sliding_windows import SlidingAggregate
from penstock.operators.windowed import WindowAggregate
from penstock.processor import TableOperator
from penstock.serdes import Int64, Serde, SessionWindowed, TimeWindowed
from penstock.state import StoreSpec
from penstock.timing import MAX_MS, SessionWindows, SlidingWindows, UnlimitedWindows, Windows
from penstock.topology import Line
from penstock.topology.functions import checked, checked_initializer

AnyWindows = Windows | SlidingWindows | SessionWindows


class EmitStrategy(Enum):
    """When a windowed aggregation emits: at every update, or once, when the window closes."""

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"


@dataclass(frozen=True, slots=True)
class WindowedGroup:
    """A grouped stream cut into windows, and when its aggregates are emitted."""

    group: Group
    windows: AnyWindows
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE

    def emitting(self, strategy: EmitStrategy, line: Line) -> WindowedGroup:
        """Return the same group with another strategy."""
        strategy = EmitStrategy(strategy)
        if strategy is EmitStrategy.ON_WINDOW_CLOSE and isinstance(self.windows, UnlimitedWindows):
            raise TopologyError(f"Unlimited windows never close, so ON_WINDOW_CLOSE would emit nothing ({line}).")
        return WindowedGroup(self.group, self.windows, strategy)


def cut(group: Group, windows: AnyWindows, line: Line) -> WindowedGroup:
    """Cut a grouped stream into windows."""
    check_windows(windows, line)
    return WindowedGroup(group, windows)


def count(windowed: WindowedGroup, store: str | Store | None, name: str | None, line: Line) -> TablePlace:
    """Count the records of each key in each window."""
    place = windowed.group.place
    if isinstance(store, Store) and store.name is None and not isinstance(windowed.windows, SlidingWindows):
        place.draft.store_name("KSTREAM-AGGREGATE-")  # as in aggregations.count
    kept = kept_as(place.draft, store, "KSTREAM-AGGREGATE-", place.key, Int64())
    name = place.draft.name("KSTREAM-AGGREGATE-", name)
    return _windowed(windowed, name, kept, zero, one_more, sum_of_counts, line)


def reduce(
    windowed: WindowedGroup, reducer: Callable[[Any, Any], Any], store: str | Store | None, name: str | None, line: Line
) -> TablePlace:
    """Combine the values of each key in each window, starting with the first."""
    place = windowed.group.place
    checked(reducer, "aggregate, value", "reduce", line)
    kept = kept_as(place.draft, store, "KSTREAM-REDUCE-", place.key, value_kept(place.draft, place.value, reducer))
    name = place.draft.name("KSTREAM-REDUCE-", name)
    aggregator = reducing(reducer)
    return _windowed(windowed, name, kept, nothing, aggregator, merging(aggregator), line)


def aggregate(
    windowed: WindowedGroup,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    merger: Callable[[Any, Any, Any], Any] | None,
    value: Any,
    store: str | Store | None,
    name: str | None,
    line: Line,
) -> TablePlace:
    """Combine the values of each key in each window, starting with an initial aggregate."""
    place = windowed.group.place
    check_aggregate(initializer, aggregator, merger, windowed.windows, line)
    made = aggregate_made(place.draft, initializer, [aggregator], line)
    kept = kept_as(place.draft, store, "KSTREAM-AGGREGATE-", place.key, made, value)
    name = place.draft.name("KSTREAM-AGGREGATE-", name)
    return _windowed(windowed, name, kept, initializer, aggregator, merger, line)


def agg(
    windowed: WindowedGroup, into: Any, given: Mapping[str, Any], store: str | Store | None, name: str | None, line: Line
) -> TablePlace:
    """Compute ready aggregates of each key in each window."""
    place = windowed.group.place
    node, kept = ready_aggregates(place, into, given, store, name, line)
    name = place.draft.name("KSTREAM-AGGREGATE-", name)
    initial, add, merge = (Computed(node, form) for form in (Form.INITIAL, Form.ADD, Form.MERGE))
    return _windowed(windowed, name, kept, initial, add, merge, line)


def _windowed(
    windowed: WindowedGroup,
    name: str,
    kept: Materialized,
    initializer: Callable[[], Any],
    aggregator: Callable[..., Any],
    merger: Callable[..., Any] | None,
    line: Line,
) -> TablePlace:
    on_close = windowed.emit is EmitStrategy.ON_WINDOW_CLOSE
    plan = window_plan(windowed.windows, kept, windowed.group.place.draft, initializer, merger, on_close)

    def operate(store: str, old: bool) -> TableOperator:
        return plan.operator(store, aggregator, old)

    return aggregated(windowed.group, name, kept, plan.spec, operate, line, key=plan.key, grace_ms=plan.grace_ms)


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What the kind of window decides: the store, the key of the result, the grace period, the operator."""

    spec: StoreSpec
    key: Serde[Any]
    grace_ms: int
    operator: Callable[[str, Callable[..., Any], bool], TableOperator]


def window_plan(
    windows: AnyWindows,
    kept: Materialized,
    draft: Draft,
    initializer: Callable[[], Any],
    merger: Callable[..., Any] | None,
    on_close: bool,
) -> WindowPlan:
    """Return what this kind of window decides."""
    key = kept.key or draft.default_key
    if isinstance(windows, SessionWindows):
        assert merger is not None, "check_aggregate has rejected sessions without one"
        merge = merger
        return WindowPlan(
            kept.session_spec(draft, windows, on_close),
            SessionWindowed(key),
            windows.grace_ms + windows.gap_ms,
            lambda store, aggregator, old: SessionAggregate(store, windows, initializer, aggregator, merge, on_close, old),
        )
    spec = kept.window_spec(draft, windows, on_close)
    if isinstance(windows, SlidingWindows):
        return WindowPlan(
            spec,
            TimeWindowed(key, windows.size_ms),
            windows.grace_ms,
            lambda store, aggregator, old: SlidingAggregate(store, windows, initializer, aggregator, on_close, old),
        )
    size_ms = MAX_MS if isinstance(windows, UnlimitedWindows) else windows.size_ms
    return WindowPlan(
        spec,
        TimeWindowed(key, size_ms),
        windows.grace_ms,
        lambda store, aggregator, old: WindowAggregate(store, windows, initializer, aggregator, on_close, old),
    )


def check_aggregate(
    initializer: Callable[..., Any],
    aggregator: Callable[..., Any] | None,
    merger: Callable[..., Any] | None,
    windows: AnyWindows | None,
    line: Line,
) -> None:
    """Reject functions that an aggregation over these windows cannot use."""
    checked_initializer(initializer, "aggregate's initializer", line)
    if aggregator is not None:
        checked(aggregator, "key, value, aggregate", "aggregate", line)
    if isinstance(windows, SessionWindows) and merger is None:
        raise TopologyError(f"An aggregation over session windows needs a merger(key, one, two) ({line}).")
    if merger is not None:
        if not isinstance(windows, SessionWindows):
            raise TopologyError(f"Only an aggregation over session windows takes a merger, not one over {windows!r} ({line}).")
        checked(merger, "key, one, two", "aggregate's merger", line)


def check_windows(windows: AnyWindows, line: Line) -> None:
    """Reject anything that is not windows."""
    if not isinstance(windows, SlidingWindows | SessionWindows) and not hasattr(windows, "windows_for"):
        raise TopologyError(f"windowed_by takes windows, such as tumbling('5m'), not {windows!r} ({line}).")
