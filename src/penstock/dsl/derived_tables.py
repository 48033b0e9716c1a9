"""Tables made from a stream or from one other table, and what follows from a table: its stream, its group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from penstock.dsl import stateless
from penstock.dsl.annotations import BY_TRANSFORMER, key_made, pair_of, returned, transformed, value_made
from penstock.dsl.draft import DraftNode, one_processor, window_grace_ms
from penstock.dsl.expressions import computed, predicate, records_of, serde_for
from penstock.dsl.place import Place, given_serde
from penstock.dsl.repartitions import repartition
from penstock.dsl.stores import Materialized, Store, materialized
from penstock.dsl.table_drafts import DerivedDraft, SourceDraft, SuppressDraft, TablePlace, source_table_write
from penstock.errors import TopologyError
from penstock.expressions import Expression
from penstock.expressions.functions import Form
from penstock.operators.processors import SetUp
from penstock.operators.stateless import NewValue
from penstock.operators.suppress import Suppress, suppress_buffer_spec
from penstock.operators.tables import TableFilter, TableMapValues, TableRepartitionMap, TableTransformValues
from penstock.processor import TableOperator, ValueTransformer
from penstock.serdes import Serde
from penstock.timing import Suppressed
from penstock.topology import Line, ProcessorNode, Topology
from penstock.topology.functions import checked, checked_supplier

Finish = Callable[[str | None, bool], TableOperator]
"""Creates a table's operator when the draft is written, from its store's name and whether old values are sent."""


def table_of(here: Place, store: str | Store | None, key: Any, value: Any, given: str | None, line: Line) -> TablePlace:
    """Read a stream as a table's changes, behind an exchange if its key is new."""
    name = here.draft.name("KSTREAM-TOTABLE-", given)
    kept = materialized(here.draft, store, "KSTREAM-TOTABLE-")
    kept.key = given_serde(key) or kept.key or here.key
    kept.value = given_serde(value) or kept.value or here.value
    if here.rekeyed:
        exchange = repartition(here.draft, name if given is None else given, kept.key, kept.value, line)
        here = exchange.below(here, kept.key, kept.value)
    table = SourceDraft(kept, kept.is_queryable)
    write = source_table_write(here.draft, name, table, line)
    node = here.draft.add(DraftNode(name, line, write, output_versioned=kept.is_versioned), here.node)
    return TablePlace(here.moved(name, node, rekeyed=False, key=kept.key, value=kept.value), table, kept.queryable_name)


def filter_entries(
    here: TablePlace,
    given: tuple[Any, ...],
    store: str | Store | None,
    name: str | None,
    line: Line,
    *,
    negate: bool = False,
) -> TablePlace:
    """Keep the entries for which the predicate holds; with `negate`, the others."""
    holds = predicate(here.place, given, "filter_not" if negate else "filter", line, of_table=True)
    kept = _kept(here.place, store, "KTABLE-FILTER-")
    name = here.place.draft.name("KTABLE-FILTER-", name)
    parent = here.place.name
    versioned: list[str] = []

    def finish(store_name: str | None, send_old_values: bool) -> TableOperator:
        return TableFilter(parent, holds, negate, store_name, send_old_values, bool(versioned))

    table = DerivedDraft(here.table, _queryable(kept))
    # If the parent is kept anyway, the filter gets old values from it, and sends no needless tombstones.
    table.sends_old_values = here.table.send_old_values(force=False)
    derived = _derived(here.place, name, table, kept, finish, line, value=here.place.value)
    derived.place.node.on_versioned_parent = versioned.append
    return derived


def map_values(
    here: TablePlace,
    mapper: Any,
    with_key: bool,
    value: Any,
    store: str | Store | None,
    name: str | None,
    line: Line,
) -> TablePlace:
    """Replace each value."""
    by_key, known = _mapper(here.place, mapper, with_key, line)
    kept = _kept(here.place, store, "KTABLE-MAPVALUES-", value)
    name = here.place.draft.name("KTABLE-MAPVALUES-", name)
    parent = here.place.name

    def finish(store_name: str | None, send_old_values: bool) -> TableOperator:
        return TableMapValues(parent, by_key, store_name, send_old_values)

    value_serde = given_serde(value) or (kept.value if kept is not None else None) or known
    if value_serde is None and not isinstance(mapper, Expression):
        value_serde = value_made(here.place.draft, None, returned(mapper), "map_values", line)
    return _derived(here.place, name, DerivedDraft(here.table, _queryable(kept)), kept, finish, line, value=value_serde)


def _mapper(here: Place, mapper: Any, with_key: bool, line: Line) -> tuple[Callable[[Any, Any], Any], Serde[Any] | None]:
    """Return a mapper of key and value, and the serde of its results as far as it is known."""
    if isinstance(mapper, Expression):
        found = computed(mapper, Form.VALUE, records_of(here), "map_values", line, with_key=with_key)
        return found, serde_for(found, records_of(here), here)
    checked(mapper, "key, value" if with_key else "value", "map_values", line)
    return mapper if with_key else ignoring_key(mapper), None


def transform_values(
    here: TablePlace,
    supplier: Callable[..., ValueTransformer[Any, Any, Any]],
    setup: SetUp,
    stores: Iterable[str],
    value: Any,
    store: str | Store | None,
    name: str | None,
    line: Line,
) -> TablePlace:
    """Replace each value with the result of a transformer that may use stores."""
    checked_supplier(supplier, setup, "transform_values", line)
    kept = _kept(here.place, store, None, value)
    name = here.place.draft.name("KTABLE-TRANSFORMVALUES-", name)
    parent, used = here.place.name, tuple(stores)

    def finish(store_name: str | None, send_old_values: bool) -> TableOperator:
        return TableTransformValues(parent, supplier, used, store_name, send_old_values, setup)

    value_serde = (kept.value if kept is not None and value is None else None) or value_made(
        here.place.draft, value, transformed(supplier), "transform_values", line, BY_TRANSFORMER
    )
    table = DerivedDraft(here.table, _queryable(kept))
    return _derived(here.place, name, table, kept, finish, line, value=value_serde, stores=used)


def stream_of(here: Place, mapper: Any, key: Any, name: str | None, line: Line) -> Place:
    """Read a table's changes as a stream, with new keys if there is a mapper."""
    if mapper is None and key is not None:
        raise TopologyError(f"to_stream takes key=, the type of the mapper's keys, only with a mapper ({line}).")
    if mapper is not None and not isinstance(mapper, Expression):
        checked(mapper, "key, value", "to_stream", line)
    stream = here.below(here.draft.name("KTABLE-TOSTREAM-", name), NewValue(), line)
    return stream if mapper is None else stateless.select_key(stream, mapper, key, None, line)


def suppress(here: TablePlace, suppressed: Suppressed, line: Line) -> TablePlace:
    """Hold changes back in a buffer."""
    if not isinstance(suppressed, Suppressed):
        raise TopologyError(f"suppress takes until_window_closes() or until_time_limit(...), not {suppressed!r} ({line}).")
    place, draft, parent = here.place, here.place.draft, here.place.name
    name = suppressed.name if suppressed.name is not None else draft.name("KTABLE-SUPPRESS-")
    grace_ms = window_grace_ms(place.node, line, (parent,)) if suppressed.final_results else 0
    store = f"{name}-store" if suppressed.name is not None else draft.store_name("KTABLE-SUPPRESS-")
    here.table.send_old_values(force=True)
    key, value = place.key or draft.default_key, place.value or draft.default_value
    spec = suppress_buffer_spec(store, suppressed, key=key, value=value)
    write = one_processor(name, line, lambda: Suppress(parent, store, suppressed, grace_ms), spec)
    node = DraftNode(name, line, write, output_versioned=False, refuses_versioned=True)
    return TablePlace(place.moved(name, draft.add(node, place.node)), SuppressDraft(here.table, store))


def group_by(
    here: TablePlace,
    selector: Any,
    key: Any,
    value: Any,
    name: str | None,
    line: Line,
) -> Place:
    """Replace the key and the value of each entry with those to group."""
    place, draft = here.place, here.place.draft
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    if isinstance(selector, Expression):
        selector = computed(selector, Form.PAIR, records_of(place), "group_by", line)
        key_serde = given_serde(key) or serde_for(selector, records_of(place), place)
        value_serde = given_serde(value) or place.value
    else:
        checked(selector, "key, value", "group_by", line)
        key_kind, value_kind = pair_of(returned(selector))
        key_serde = key_made(draft, key, key_kind)
        value_serde = value_made(draft, value, value_kind, "group_by", line)
    selected = draft.name("KTABLE-SELECT-", name)
    versioned: list[str] = []
    write = one_processor(selected, line, lambda: TableRepartitionMap(selector, bool(versioned)))
    node = draft.add(DraftNode(selected, line, write, on_versioned_parent=versioned.append), place.node)
    here.table.send_old_values(force=True)
    return place.moved(selected, node, key=key_serde, value=value_serde)


def _kept(here: Place, store: str | Store | None, prefix: str | None, value: Any = None) -> Materialized | None:
    """Return how the table is kept, None without `store=`. A store without a name advances the counter if there is a prefix."""
    if store is None:
        return None
    if isinstance(store, Store) and store.name is None and prefix is None:
        kept = materialized(here.draft, replace(store, name=""), "")
        kept.is_queryable = False
    else:
        kept = materialized(here.draft, store, prefix or "")
    kept.key = kept.key or here.key
    kept.value = kept.value or given_serde(value)
    return kept


def _derived(
    here: Place,
    name: str,
    table: DerivedDraft,
    kept: Materialized | None,
    finish: Finish,
    line: Line,
    *,
    value: Serde[Any] | None,
    stores: tuple[str, ...] = (),
) -> TablePlace:
    draft, store = here.draft, table.store
    if store is not None and store.value is None:
        store.value = value

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        operator = finish(None if store is None else store.store_name, table.sends_old_values)
        topology.add_node(ProcessorNode(name, parents, operator, (), line))
        if store is not None:
            topology.add_state_store(store.table_spec(draft), name)
        topology.connect_processor_and_state_stores(name, *stores)

    node = DraftNode(name, line, write, output_versioned=None if kept is None else kept.is_versioned)
    key = (kept.key if kept is not None else None) or here.key
    place = here.moved(name, draft.add(node, here.node), key=key, value=value)
    return TablePlace(place, table, None if store is None else store.store_name)


def _queryable(kept: Materialized | None) -> Materialized | None:
    return kept if kept is not None and kept.is_queryable else None


def ignoring_key(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function of the value as one of the key and the value."""

    def by_key(key: Any, value: Any) -> Any:
        return function(value)

    return by_key
