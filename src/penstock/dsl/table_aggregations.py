"""Aggregations of tables that are grouped by another key: an exchange of changes, and an aggregate that adds and subtracts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.dsl.aggregations import Operate, aggregate_write, kept_as, ready_aggregates, serde_of_results
from penstock.dsl.annotations import aggregate_made, value_kept
from penstock.dsl.draft import DraftNode
from penstock.dsl.place import Place
from penstock.dsl.repartitions import SUFFIX, ExchangeEnds
from penstock.dsl.stores import Materialized, Store
from penstock.dsl.table_drafts import AggregateDraft, TablePlace
from penstock.expressions.functions import Computed, Form
from penstock.operators.counts import one_less, one_more, zero
from penstock.operators.table_aggregates import TableAggregate, TableReduce
from penstock.serdes import ChangeSerde, Int64
from penstock.topology import Line
from penstock.topology.functions import checked, checked_initializer


@dataclass(eq=False, slots=True)
class TableGroup:
    """A grouped table in the draft: its place, and its exchange with the name of the source behind it."""

    place: Place
    name: str | None
    exchange: tuple[DraftNode, str] | None = None


def count(group: TableGroup, store: str | Store | None, name: str | None, line: Line) -> TablePlace:
    """Count the entries of each group."""
    kept = kept_as(group.place.draft, store, "KTABLE-AGGREGATE-", group.place.key, Int64())
    return _build(
        group, "KTABLE-AGGREGATE-", name, kept, lambda store, old: TableAggregate(store, zero, one_more, one_less, old), line
    )


def reduce(
    group: TableGroup,
    adder: Callable[[Any, Any], Any],
    subtractor: Callable[[Any, Any], Any],
    store: str | Store | None,
    name: str | None,
    line: Line,
) -> TablePlace:
    """Combine the values of each group, starting with the first."""
    checked(adder, "aggregate, value", "reduce's adder", line)
    checked(subtractor, "aggregate, value", "reduce's subtractor", line)
    value = value_kept(group.place.draft, group.place.value, adder)
    kept = kept_as(group.place.draft, store, "KTABLE-AGGREGATE-", group.place.key, value)
    return _build(group, "KTABLE-REDUCE-", name, kept, lambda store, old: TableReduce(store, adder, subtractor, old), line)


def aggregate(
    group: TableGroup,
    initializer: Callable[[], Any],
    adder: Callable[[Any, Any, Any], Any],
    subtractor: Callable[[Any, Any, Any], Any],
    value: Any,
    store: str | Store | None,
    name: str | None,
    line: Line,
) -> TablePlace:
    """Combine the values of each group, starting with an initial aggregate."""
    checked_initializer(initializer, "aggregate's initializer", line)
    checked(adder, "key, value, aggregate", "aggregate's adder", line)
    checked(subtractor, "key, value, aggregate", "aggregate's subtractor", line)
    made = aggregate_made(group.place.draft, initializer, [adder, subtractor], line)
    kept = kept_as(group.place.draft, store, "KTABLE-AGGREGATE-", group.place.key, made, value)
    return _build(
        group,
        "KTABLE-AGGREGATE-",
        name,
        kept,
        lambda store, old: TableAggregate(store, initializer, adder, subtractor, old),
        line,
    )


def agg(
    group: TableGroup, into: Any, given: Mapping[str, Any], store: str | Store | None, name: str | None, line: Line
) -> TablePlace:
    """Compute ready aggregates of each group."""
    node, kept = ready_aggregates(group.place, into, given, store, name, line, of_table=True)
    functions = Computed(node, Form.INITIAL), Computed(node, Form.ADD), Computed(node, Form.SUBTRACT)
    return _build(group, "KTABLE-AGGREGATE-", name, kept, lambda store, old: TableAggregate(store, *functions, old), line)


def _build(group: TableGroup, prefix: str, given: str | None, kept: Materialized, operate: Operate, line: Line) -> TablePlace:
    here, draft = group.place, group.place.draft
    sink = draft.name("KSTREAM-SINK-", given, "-sink")
    source = draft.name("KSTREAM-SOURCE-", given, "-source")
    name = draft.name(prefix, given)
    topic = (group.name if group.name is not None else kept.store_name) + SUFFIX
    if group.exchange is None or group.name is None:
        key, value = here.key or draft.default_key, ChangeSerde(here.value or draft.default_value)
        group.exchange = (ExchangeEnds(topic, sink, source, key, value, line).node(), source)
    node, source = group.exchange
    draft.add(node, here.node)
    table = AggregateDraft(kept.store_name)
    spec = kept.table_spec(draft)

    write = aggregate_write(name, spec, table, operate, line)
    aggregated = draft.add(DraftNode(name, line, write, output_versioned=kept.is_versioned), node)
    place = here.moved(
        name, aggregated, rekeyed=False, key=kept.key, value=serde_of_results(kept.value), sources=frozenset({source})
    )
    return TablePlace(place, table, kept.queryable_name)
