"""Cogrouped streams: several grouped streams that feed one aggregate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.dsl.aggregations import AnyWindows, Group, Operate, WindowPlan, check_aggregate, check_windows, kept_as, window_plan
from penstock.dsl.draft import Draft, DraftNode
from penstock.dsl.stores import Materialized, Store
from penstock.dsl.table_drafts import AggregateDraft, MergeDraft
from penstock.operators.aggregates import StreamAggregate
from penstock.operators.table_aggregates import TablePassThrough
from penstock.records import Windowed
from penstock.state import StoreSpec
from penstock.topology import Line, ProcessorNode, Topology, user_line
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from penstock.dsl.grouped import KGroupedStream
    from penstock.dsl.tables import KTable

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


Part = tuple[Group, Callable[..., Any]]


class Cogroup(Generic[K, A]):
    """What cogrouped streams have in common, with windows and without."""

    __slots__ = ("_parts", "_windows")

    def __init__(self, parts: tuple[Part, ...], windows: AnyWindows | None = None) -> None:
        self._parts = parts
        self._windows = windows

    def _with(self, group: Group, aggregator: Callable[..., Any], line: Line) -> tuple[Part, ...]:
        checked(aggregator, "key, value, aggregate", "cogroup", line)
        if self._parts:
            self._parts[0][0].place.check_same_builder(group.place, line)
        known = {id(part[0]): part for part in self._parts}
        known[id(group)] = (group, aggregator)
        return tuple(known.values())

    def _aggregated(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A] | None,
        value: Any,
        store: str | Store | None,
        name: str | None,
        line: Line,
    ) -> KTable[Any, A]:
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


class CogroupedKStream(Cogroup[K, A]):
    """Several grouped streams that feed one aggregate."""

    __slots__ = ()

    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Add a grouped stream with its own `aggregator(key, value, aggregate)`."""
        return CogroupedKStream(self._with(grouped.group, aggregator, user_line()))

    def windowed_by(self, windows: AnyWindows) -> WindowedCogroupedKStream[K, A]:
        """Aggregate per window."""
        check_windows(windows, user_line())
        return WindowedCogroupedKStream(self._parts, windows)

    def aggregate(
        self, initializer: Callable[[], A], *, value: Any = None, store: str | Store | None = None, name: str | None = None
    ) -> KTable[K, A]:
        """The table of the common aggregate."""
        return self._aggregated(initializer, None, value, store, name, user_line())


class WindowedCogroupedKStream(Cogroup[K, A]):
    """Several grouped streams, cut into windows, that feed one aggregate per window."""

    __slots__ = ()

    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]) -> WindowedCogroupedKStream[K, A]:
        """Add a grouped stream with its own `aggregator(key, value, aggregate)`."""
        return WindowedCogroupedKStream(self._with(grouped.group, aggregator, user_line()), self._windows)

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A] | None = None,
        *,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """The table of the common aggregate per window; session windows also need `merger(key, one, two)`."""
        return self._aggregated(initializer, merger, value, store, name, user_line())


def _part_operator(plan: WindowPlan | None, initializer: Callable[[], Any], aggregator: Callable[..., Any]) -> Operate:
    if plan is None:
        return lambda store, old: StreamAggregate(store, initializer, aggregator, old)
    return lambda store, old: plan.operator(store, aggregator, old)


def _cogroup_part(name: str, spec: StoreSpec, table: AggregateDraft, operate: Operate, line: Line) -> DraftNode:
    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(name, parents, operate(spec.name, table.sends_old_values), (), line))
        topology.add_state_store(spec, name)

    return DraftNode(name, line, write)
