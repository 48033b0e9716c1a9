"""Cogrouped streams: several grouped streams that feed one aggregate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.dsl.aggregating import AnyWindows, Group, Operate, WindowPlan, check_aggregate, check_windows, kept_as, window_plan
from penstock.dsl.draft import Draft, DraftNode
from penstock.dsl.stores import Materialized, Store
from penstock.dsl.table_drafts import AggregateDraft, MergeDraft
from penstock.operators.aggregates import StreamAggregate
from penstock.operators.table_aggregates import TablePassThrough
from penstock.state import StoreSpec
from penstock.topology import Line, ProcessorNode, Topology, user_line
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from penstock.dsl.tables import KTable

K = TypeVar("K")
A = TypeVar("A")


class Grouped(Protocol):
    """A grouped stream, as far as a cogroup needs it."""

    @property
    def group(self) -> Group:
        """Where the group stands in the draft."""


Part = tuple[Group, Callable[..., Any]]


class CogroupedKStream(Generic[K, A]):
    """Several grouped streams that feed one aggregate."""

    __slots__ = ("_parts", "_windows")

    def __init__(self, parts: tuple[Part, ...], windows: AnyWindows | None = None) -> None:
        self._parts = parts
        self._windows = windows

    def cogroup(self, grouped: Grouped, aggregator: Callable[[K, Any, A], A]) -> CogroupedKStream[K, A]:
        """Add a grouped stream with its own `aggregator(key, value, aggregate)`."""
        line = user_line()
        checked(aggregator, "key, value, aggregate", "cogroup", line)
        if self._parts:
            self._parts[0][0].place.check_same_builder(grouped.group.place, line)
        known = {id(part[0]): part for part in self._parts}
        known[id(grouped.group)] = (grouped.group, aggregator)
        return CogroupedKStream(tuple(known.values()), self._windows)

    def windowed_by(self, windows: AnyWindows) -> CogroupedKStream[K, A]:
        """Aggregate per window."""
        check_windows(windows, user_line())
        return CogroupedKStream(self._parts, windows)

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A] | None = None,
        *,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[Any, A]:
        """The table of the common aggregate; session windows also need `merger(key, one, two)`."""
        line = user_line()
        check_aggregate(initializer, None, merger, self._windows, line)
        first = self._parts[0][0].place
        draft = first.draft
        kept = kept_as(draft, store, "COGROUPKSTREAM-AGGREGATE-", first.key, None, value)
        plan = None if self._windows is None else window_plan(self._windows, kept, draft, initializer, merger, on_close=False)
        spec = kept.table_spec(draft) if plan is None else plan.spec
        parents = self._exchanged(kept, line)
        drafts: list[AggregateDraft] = []
        nodes: list[DraftNode] = []
        for number, (_, aggregator) in enumerate(self._parts):
            part_name = draft.name("COGROUPKSTREAM-AGGREGATE-", name, f"-cogroup-agg-{number}")
            table = AggregateDraft(spec.name)
            node = _cogroup_part(part_name, spec, table, _part_operator(plan, initializer, aggregator), line)
            node.output_versioned = kept.is_versioned if plan is None else None
            node.grace_ms = None if plan is None else plan.grace_ms
            nodes.append(draft.add(node, parents[number]))
            drafts.append(table)
        return self._merged(draft, kept, spec, plan, drafts, nodes, name, line)

    def _exchanged(self, kept: Materialized, line: Line) -> list[DraftNode]:
        """Exchanges come first, all of them, as in Kafka Streams."""
        parents: list[DraftNode] = []
        sources: frozenset[str] = frozenset()
        for group, _ in self._parts:
            node, own = group.exchanged(kept, line)
            parents.append(node)
            sources |= own
        self._parts[0][0].place.draft.copartitioned.append(sources)
        return parents

    def _merged(
        self,
        draft: Draft,
        kept: Materialized,
        spec: StoreSpec,
        plan: WindowPlan | None,
        drafts: list[AggregateDraft],
        nodes: list[DraftNode],
        given: str | None,
        line: Line,
    ) -> KTable[Any, Any]:
        merge = draft.name("COGROUPKSTREAM-MERGE-", given, "-cogroup-merge")
        table = MergeDraft(drafts, store_name=spec.name)
        names = tuple(node.name for node in nodes)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            operator = TablePassThrough(names, spec.name, table.sends_old_values)
            topology.add_node(ProcessorNode(merge, parents, operator, (), line))

        node = draft.add(DraftNode(merge, line, write), *nodes)
        key = kept.key if plan is None else plan.key
        first = self._parts[0][0].place
        place = replace(first, node=node, name=merge, key=key, value=spec.value, sources=frozenset({merge}), rekeyed=False)
        return draft.handles.table(place, table, kept.queryable_name)


def _part_operator(plan: WindowPlan | None, initializer: Callable[[], Any], aggregator: Callable[..., Any]) -> Operate:
    if plan is None:
        return lambda store, old: StreamAggregate(store, initializer, aggregator, old)
    return lambda store, old: plan.operator(store, aggregator, old)


def _cogroup_part(name: str, spec: StoreSpec, table: AggregateDraft, operate: Operate, line: Line) -> DraftNode:
    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(name, parents, operate(spec.name, table.sends_old_values), (), line))
        topology.add_state_store(spec, name)

    return DraftNode(name, line, write)
