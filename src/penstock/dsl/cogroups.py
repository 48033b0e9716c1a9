"""Cogroups in a draft: several grouped streams that feed one aggregate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.dsl.aggregations import Group, Operate, aggregate_write, kept_as
from penstock.dsl.annotations import aggregate_made
from penstock.dsl.draft import DraftNode, one_processor
from penstock.dsl.place import Place
from penstock.dsl.stores import Materialized, Store
from penstock.dsl.table_drafts import AggregateDraft, MergeDraft, TablePlace
from penstock.dsl.windowed_aggregations import AnyWindows, WindowPlan, check_aggregate, check_windows, window_plan
from penstock.operators.aggregates import StreamAggregate
from penstock.operators.table_aggregates import TablePassThrough
from penstock.topology import Line
from penstock.topology.functions import checked

Part = tuple[Group, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Cogroup:
    """Grouped streams, each with its aggregator, and the windows they are cut into, if any."""

    parts: tuple[Part, ...] = ()
    windows: AnyWindows | None = None

    @property
    def place(self) -> Place:
        """The place of the first stream."""
        return self.parts[0][0].place

    def with_part(self, group: Group, aggregator: Callable[..., Any], line: Line) -> Cogroup:
        """Return the cogroup with one more stream; a stream that it has already gets the new aggregator."""
        checked(aggregator, "key, value, aggregate", "cogroup", line)
        if self.parts:
            self.place.check_same_builder(group.place, line)
        known = {id(part[0]): part for part in self.parts}
        known[id(group)] = (group, aggregator)
        return replace(self, parts=tuple(known.values()))

    def cut(self, windows: AnyWindows, line: Line) -> Cogroup:
        """Return the cogroup cut into windows."""
        check_windows(windows, line)
        return replace(self, windows=windows)


def aggregate(
    cogroup: Cogroup,
    initializer: Callable[[], Any],
    merger: Callable[[Any, Any, Any], Any] | None,
    value: Any,
    store: str | Store | None,
    name: str | None,
    line: Line,
) -> TablePlace:
    """Combine the values of each key of all streams: one node per stream, and one that merges their results."""
    check_aggregate(initializer, None, merger, cogroup.windows, line)
    first, draft = cogroup.place, cogroup.place.draft
    made = aggregate_made(draft, initializer, [aggregator for _, aggregator in cogroup.parts], line)
    kept = kept_as(draft, store, "COGROUPKSTREAM-AGGREGATE-", first.key, made, value)
    plan = None if cogroup.windows is None else window_plan(cogroup.windows, kept, draft, initializer, merger, on_close=False)
    spec = kept.table_spec(draft) if plan is None else plan.spec
    parents = _exchanged(cogroup, kept, line)
    drafts: list[AggregateDraft] = []
    nodes: list[DraftNode] = []
    for number, (_, aggregator) in enumerate(cogroup.parts):
        part_name = draft.name("COGROUPKSTREAM-AGGREGATE-", name, f"-cogroup-agg-{number}")
        table = AggregateDraft(spec.name)
        operate = _part_operator(plan, initializer, aggregator)
        node = DraftNode(part_name, line, aggregate_write(part_name, spec, table, operate, line))
        node.output_versioned = kept.is_versioned if plan is None else None
        node.grace_ms = None if plan is None else plan.grace_ms
        nodes.append(draft.add(node, parents[number]))
        drafts.append(table)
    merged = replace(first, key=kept.key if plan is None else plan.key, value=spec.value, rekeyed=False)
    return _merged(merged, MergeDraft(drafts, store_name=spec.name), nodes, kept, name, line)


def _exchanged(cogroup: Cogroup, kept: Materialized, line: Line) -> list[DraftNode]:
    """Put the exchanges below all streams first, as Kafka Streams does; return the nodes to aggregate below."""
    parents: list[DraftNode] = []
    sources: frozenset[str] = frozenset()
    for group, _ in cogroup.parts:
        node, own = group.exchanged(kept, line)
        parents.append(node)
        sources |= own
    cogroup.place.draft.copartitioned.append(sources)
    return parents


def _merged(
    here: Place, table: MergeDraft, parts: list[DraftNode], kept: Materialized, given: str | None, line: Line
) -> TablePlace:
    merge = here.draft.name("COGROUPKSTREAM-MERGE-", given, "-cogroup-merge")
    names = tuple(node.name for node in parts)
    write = one_processor(merge, line, lambda: TablePassThrough(names, kept.store_name, table.sends_old_values))
    node = here.draft.add(DraftNode(merge, line, write), *parts)
    return TablePlace(here.moved(merge, node, sources=frozenset({merge})), table, kept.queryable_name)


def _part_operator(plan: WindowPlan | None, initializer: Callable[[], Any], aggregator: Callable[..., Any]) -> Operate:
    if plan is None:
        return lambda store, old: StreamAggregate(store, initializer, aggregator, old)
    return lambda store, old: plan.operator(store, aggregator, old)
