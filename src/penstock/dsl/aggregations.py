"""Aggregations of grouped streams without windows, and what all aggregations share: the group, its exchange, the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.dsl.annotations import aggregate_made, value_kept
from penstock.dsl.draft import Draft, DraftNode, Write, one_processor
from penstock.dsl.expressions import aggregates_of, refuse_taken_names
from penstock.dsl.place import Place, given_serde
from penstock.dsl.repartitions import repartition
from penstock.dsl.stores import Materialized, Store, materialized
from penstock.dsl.table_drafts import AggregateDraft, TablePlace
from penstock.errors import TopologyError
from penstock.expressions.aggregates_serde import AggregatesSerde
from penstock.expressions.aggregation import STATES
from penstock.expressions.functions import Computed, Form
from penstock.expressions.nodes import Aggregates
from penstock.operators.aggregates import StreamAggregate
from penstock.operators.counts import one_more, zero
from penstock.processor import TableOperator
from penstock.serdes import Int64, Json, MsgPack, Serde, serde_of
from penstock.state import StoreSpec
from penstock.topology import Line
from penstock.topology.functions import checked, checked_initializer

Operate = Callable[[str, bool], TableOperator]
"""Creates the operator when the draft is written, from the store's name and whether old values are sent."""


@dataclass(eq=False, slots=True)
class Group:
    """A grouped stream in the draft: its place, and the exchange it needs first if its key is new."""

    place: Place
    name: str | None
    repartition_node: DraftNode | None = None

    def exchanged(self, store: Materialized, line: Line) -> tuple[DraftNode, frozenset[str]]:
        """Return the node to aggregate below, behind an exchange if the key is new, and its source nodes."""
        here = self.place
        if not here.rekeyed:
            return here.node, here.sources
        prefix = self.name if self.name is not None else store.store_name
        exchange = repartition(here.draft, prefix, here.key, here.value, line)
        if self.repartition_node is None or self.name is None:
            self.repartition_node = exchange.node()
        here.draft.add(self.repartition_node, here.node)
        return self.repartition_node, frozenset({exchange.source})


def count(group: Group, store: str | Store | None, name: str | None, line: Line) -> TablePlace:
    """Count the records of each key."""
    place = group.place
    if isinstance(store, Store) and store.name is None:
        place.draft.store_name("KSTREAM-AGGREGATE-")  # Kafka Streams skips a number here, and names must match
    kept = kept_as(place.draft, store, "KSTREAM-AGGREGATE-", place.key, Int64())
    name = place.draft.name("KSTREAM-AGGREGATE-", name)
    return _plain(group, name, kept, lambda store, old: StreamAggregate(store, zero, one_more, old), line)


def reduce(
    group: Group, reducer: Callable[[Any, Any], Any], store: str | Store | None, name: str | None, line: Line
) -> TablePlace:
    """Combine the values of each key, starting with the first."""
    place = group.place
    checked(reducer, "aggregate, value", "reduce", line)
    kept = kept_as(place.draft, store, "KSTREAM-REDUCE-", place.key, value_kept(place.draft, place.value, reducer))
    name = place.draft.name("KSTREAM-REDUCE-", name)
    return _plain(group, name, kept, lambda store, old: StreamAggregate(store, nothing, reducing(reducer), old), line)


def aggregate(
    group: Group,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    value: Any,
    store: str | Store | None,
    name: str | None,
    line: Line,
) -> TablePlace:
    """Combine the values of each key, starting with an initial aggregate."""
    place = group.place
    checked_initializer(initializer, "aggregate's initializer", line)
    checked(aggregator, "key, value, aggregate", "aggregate", line)
    made = aggregate_made(place.draft, initializer, [aggregator], line)
    kept = kept_as(place.draft, store, "KSTREAM-AGGREGATE-", place.key, made, value)
    name = place.draft.name("KSTREAM-AGGREGATE-", name)
    return _plain(group, name, kept, lambda store, old: StreamAggregate(store, initializer, aggregator, old), line)


def agg(group: Group, into: Any, given: Mapping[str, Any], store: str | Store | None, name: str | None, line: Line) -> TablePlace:
    """Compute ready aggregates of each key."""
    place = group.place
    node, kept = ready_aggregates(place, into, given, store, name, line)
    name = place.draft.name("KSTREAM-AGGREGATE-", name)
    functions = Computed(node, Form.INITIAL), Computed(node, Form.ADD)
    return _plain(group, name, kept, lambda store, old: StreamAggregate(store, *functions, old), line)


def ready_aggregates(
    here: Place,
    into: Any,
    given: Mapping[str, Any],
    store: str | Store | None,
    name: str | None,
    line: Line,
    *,
    of_table: bool = False,
) -> tuple[Aggregates, Materialized]:
    """Return the aggregates of the verb `agg`, and how they are kept: by default as documents of their class."""
    refuse_taken_names(name, store, line)
    node = aggregates_of(here, into, given, line, of_table=of_table)
    kept = kept_as(here.draft, store, "KTABLE-AGGREGATE-" if of_table else "KSTREAM-AGGREGATE-", here.key, None)
    kept.value = kept.value or serde_of(dict if node.into is None else node.into)
    kept.aggregates = Aggregates(node.fields).describe()
    stateful = {name: part.function for name, part in node.fields if part.function in STATES}
    if stateful:
        if kept.value not in (Json(), MsgPack()):
            names = ", ".join(stateful)
            raise TopologyError(
                f"Store {kept.store_name!r} is of {kept.value!r}, but {names} can only be kept as dict or MsgPack() ({line})."
            )
        kept.value = AggregatesSerde(kept.value, stateful)
    return node, kept


def serde_of_results(stored: Serde[Any] | None) -> Serde[Any] | None:
    """Return the serde of a table's values, given that of its store, which may keep more."""
    return stored.inner if isinstance(stored, AggregatesSerde) else stored


def _plain(group: Group, name: str, kept: Materialized, operate: Operate, line: Line) -> TablePlace:
    return aggregated(group, name, kept, kept.table_spec(group.place.draft), operate, line, key=kept.key)


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
) -> TablePlace:
    """Put an aggregate node below a group."""
    draft = group.place.draft
    parent, sources = group.exchanged(kept, line)
    table = AggregateDraft(spec.name)

    versioned = kept.is_versioned if grace_ms is None else False
    write = aggregate_write(name, spec, table, operate, line)
    node = draft.add(DraftNode(name, line, write, output_versioned=versioned, grace_ms=grace_ms), parent)
    place = group.place.moved(name, node, rekeyed=False, key=key, value=serde_of_results(spec.value), sources=sources)
    return TablePlace(place, table, kept.queryable_name)


def aggregate_write(name: str, spec: StoreSpec, table: AggregateDraft, operate: Operate, line: Line) -> Write:
    """Return what writes the node of an aggregate, with its store."""
    return one_processor(name, line, lambda: operate(spec.name, table.sends_old_values), spec)


def kept_as(
    draft: Draft,
    store: str | Store | None,
    prefix: str,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    given_value: Any = None,
) -> Materialized:
    """Return how an aggregate is kept: as `store=` says, by default with the serdes known from upstream."""
    kept = materialized(draft, store, prefix)
    kept.key = kept.key or key
    kept.value = given_serde(given_value) or kept.value or value
    return kept


def nothing() -> None:
    """Return no aggregate: the first value becomes it."""


def reducing(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Return a reducer as an aggregator; the first value is the first aggregate."""

    def aggregator(key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    return aggregator


def merging(aggregator: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Return a reducer's aggregator as a merger of sessions; the second session counts as one more value."""

    def merger(key: Any, one: Any, two: Any) -> Any:
        return aggregator(key, two, one)

    return merger
