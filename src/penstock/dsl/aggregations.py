"""What all aggregations share: the group, its exchange, the store, and what the kind of window decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.dsl.draft import Draft, DraftNode
from penstock.dsl.place import Place, given_serde
from penstock.dsl.repartitions import repartition
from penstock.dsl.stores import Materialized, Store, materialized
from penstock.dsl.table_drafts import AggregateDraft
from penstock.errors import TopologyError
from penstock.operators.sessions import SessionAggregate
from penstock.operators.sliding_windows import SlidingAggregate
from penstock.operators.windowed import WindowAggregate
from penstock.processor import TableOperator
from penstock.serdes import Serde, SessionWindowed, TimeWindowed
from penstock.state import StoreSpec
from penstock.timing import MAX_MS, SessionWindows, SlidingWindows, UnlimitedWindows, Windows
from penstock.topology import Line, ProcessorNode, Topology
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from penstock.dsl.tables import KTable

AnyWindows = Windows | SlidingWindows | SessionWindows
Operate = Callable[[str, bool], TableOperator]
"""Makes the aggregate's operator when the draft is written: from the store's name and whether old values are sent."""


def zero() -> int:
    """No record yet."""
    return 0


def one_more(key: Any, value: Any, count: int) -> int:
    """Count a record, or a row that came."""
    return count + 1


def one_less(key: Any, value: Any, count: int) -> int:
    """Take back a row that went."""
    return count - 1


def sum_of_counts(key: Any, left: int, right: int) -> int:
    """The count of two sessions that became one."""
    return left + right


def nothing() -> None:
    """No aggregate yet: the first value will be it."""


def reducing(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """A reducer as an aggregator: the first value is the first aggregate."""

    def aggregator(key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    return aggregator


def merging(aggregator: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """A reducer's aggregator as a merger of sessions: the second session is one more value."""

    def merger(key: Any, one: Any, two: Any) -> Any:
        return aggregator(key, two, one)

    return merger


@dataclass(slots=True)
class Group:
    """A grouped stream in the draft: where it is, and the exchange it needs first if its key is new."""

    place: Place
    name: str | None
    repartition_node: DraftNode | None = None

    def exchanged(self, store: Materialized, line: Line) -> tuple[DraftNode, frozenset[str]]:
        """The node to aggregate below, behind an exchange if records must change lanes; and its source nodes."""
        here = self.place
        if not here.rekeyed:
            return here.node, here.sources
        prefix = self.name if self.name is not None else store.store_name
        exchange = repartition(here.draft, prefix, here.key, here.value, line)
        if self.repartition_node is None or self.name is None:
            self.repartition_node = exchange.node()
        here.draft.add(self.repartition_node, here.node)
        return self.repartition_node, frozenset({exchange.source})


def aggregated(
    group: Group,
    name: str,
    kept: Materialized,
    spec: StoreSpec,
    operate: Operate,
    line: Line,
    *,
    key: Serde[Any] | None,
    grace_ms: int | None = None,
) -> KTable[Any, Any]:
    """One aggregate node below a group."""
    draft = group.place.draft
    parent, sources = group.exchanged(kept, line)
    table = AggregateDraft(spec.name)

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(name, parents, operate(spec.name, table.sends_old_values), (), line))
        topology.add_state_store(spec, name)

    versioned = kept.is_versioned if grace_ms is None else False
    node = draft.add(DraftNode(name, line, write, output_versioned=versioned, grace_ms=grace_ms), parent)
    place = group.place.moved(name, node, rekeyed=False, key=key, value=spec.value, sources=sources)
    return draft.handles.table(place, table, kept.queryable_name)


def kept_as(
    draft: Draft,
    store: str | Store | None,
    prefix: str,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    given_value: Any = None,
) -> Materialized:
    """How an aggregate is kept: what `store=` says, and otherwise the serdes known from upstream."""
    kept = materialized(draft, store, prefix)
    kept.key = kept.key or key
    kept.value = given_serde(given_value) or kept.value or value
    return kept


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
    """What this kind of windows decides."""
    key = kept.key or draft.default_key
    if isinstance(windows, SessionWindows):
        assert merger is not None, "check_aggregate has refused sessions without one"
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
    """Refuse functions that an aggregation over these windows cannot use."""
    checked(initializer, "", "aggregate's initializer", line)
    if aggregator is not None:
        checked(aggregator, "key, value, aggregate", "aggregate", line)
    if isinstance(windows, SessionWindows) != (merger is not None):
        raise TopologyError(f"a merger(key, one, two) goes with session windows, and only with them ({line})")
    if merger is not None:
        checked(merger, "key, one, two", "aggregate's merger", line)


def check_windows(windows: AnyWindows, line: Line) -> None:
    """Refuse what is no windows."""
    if not isinstance(windows, SlidingWindows | SessionWindows) and not hasattr(windows, "windows_for"):
        raise TopologyError(f"windowed_by takes windows, such as tumbling('5m'), not {windows!r} ({line})")
