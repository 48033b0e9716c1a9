"""`KTable` and `GlobalKTable`: the latest value per key, changing as records come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from penstock.dsl import table_joins
from penstock.dsl.draft import DraftNode, window_grace_ms
from penstock.dsl.handles import GlobalTableHandle, TableHandle
from penstock.dsl.place import Place, given_serde
from penstock.dsl.stores import Materialized, Store, materialized
from penstock.dsl.table_drafts import DerivedDraft, SuppressDraft, TableDraft
from penstock.dsl.table_joins import JoinOptions
from penstock.errors import TopologyError
from penstock.operators.stateless import NewValue
from penstock.operators.suppress import Suppress, suppress_buffer_spec
from penstock.operators.tables import TableFilter, TableMapValues, TableRepartitionMap, TableTransformValues
from penstock.processor import TableOperator, ValueTransformer
from penstock.serdes import Serde
from penstock.timing import Suppressed
from penstock.topology import Line, ProcessorNode, Topology, user_line
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.dsl.grouped_tables import KGroupedTable
    from penstock.dsl.streams import KStream

K = TypeVar("K")
V = TypeVar("V", covariant=True)  # unlike keys, which a join looks up, values only come out
K2 = TypeVar("K2")
V2 = TypeVar("V2")
V3 = TypeVar("V3")

Finish = Callable[[str | None, bool], TableOperator]
"""Makes a table's operator when the draft is written: from its store's name and from whether old values are sent."""


class KTable(TableHandle, Generic[K, V]):
    """A table: the latest value of each key, and the stream of its changes."""

    __slots__ = ("_place", "_queryable", "_table")

    def __init__(self, place: Place, table: TableDraft, queryable: str | None) -> None:
        self._place = place
        self._table = table
        self._queryable = queryable

    @property
    def queryable_store_name(self) -> str | None:
        """The name to query this table by; None if it was not given a store."""
        return self._queryable

    def filter(
        self, predicate: Callable[[K, V], Any], *, store: str | Store | None = None, name: str | None = None
    ) -> KTable[K, V]:
        """The table of the entries for which `predicate(key, value)` holds; others count as deleted."""
        return self._filtered(checked(predicate, "key, value", "filter", user_line()), False, store, name, user_line())

    def filter_not(
        self, predicate: Callable[[K, V], Any], *, store: str | Store | None = None, name: str | None = None
    ) -> KTable[K, V]:
        """The table of the entries for which `predicate(key, value)` does not hold."""
        return self._filtered(checked(predicate, "key, value", "filter_not", user_line()), True, store, name, user_line())

    def _filtered(
        self, predicate: Callable[[K, V], Any], negate: bool, store: str | Store | None, name: str | None, line: Line
    ) -> KTable[K, V]:
        kept = self._kept(store, "KTABLE-FILTER-")
        name = self._place.draft.name("KTABLE-FILTER-", name)
        parent = self._place.name
        versioned: list[str] = []

        def finish(store_name: str | None, send_old_values: bool) -> TableOperator:
            return TableFilter(parent, predicate, negate, store_name, send_old_values, bool(versioned))

        table = DerivedDraft(self._table, _queryable(kept))
        # A filter over a table that is kept anyway learns old values at once, and so need not send needless tombstones.
        table.sends_old_values = self._table.send_old_values(force=False)
        derived = self._derived(name, table, kept, finish, line, value=self._place.value)
        derived._place.node.on_versioned_parent = versioned.append
        return derived

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2],
        *,
        with_key: Literal[False] = ...,
        value: Any = ...,
        store: str | Store | None = ...,
        name: str | None = ...,
    ) -> KTable[K, V2]: ...

    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], V2],
        *,
        with_key: Literal[True],
        value: Any = ...,
        store: str | Store | None = ...,
        name: str | None = ...,
    ) -> KTable[K, V2]: ...

    def map_values(
        self,
        mapper: Callable[..., V2],
        *,
        with_key: bool = False,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """The table with each value replaced by `mapper(value)`, or `mapper(key, value)` with `with_key=True`."""
        line = user_line()
        checked(mapper, "key, value" if with_key else "value", "map_values", line)
        kept = self._kept(store, "KTABLE-MAPVALUES-", value)
        name = self._place.draft.name("KTABLE-MAPVALUES-", name)
        parent = self._place.name
        by_key = mapper if with_key else _ignoring_key(mapper)

        def finish(store_name: str | None, send_old_values: bool) -> TableOperator:
            return TableMapValues(parent, by_key, store_name, send_old_values)

        value_serde = given_serde(value) or (kept.value if kept is not None else None)
        return self._derived(name, DerivedDraft(self._table, _queryable(kept)), kept, finish, line, value=value_serde)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V2]],
        *,
        stores: Iterable[str] = (),
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """The table with each value replaced by a stateful `ValueTransformer`, which may use stores."""
        line = user_line()
        checked(supplier, "", "transform_values", line)
        kept = self._kept(store, None, value)
        name = self._place.draft.name("KTABLE-TRANSFORMVALUES-", name)
        parent, used = self._place.name, tuple(stores)

        def finish(store_name: str | None, send_old_values: bool) -> TableOperator:
            return TableTransformValues(parent, supplier, used, store_name, send_old_values)

        value_serde = given_serde(value) or (kept.value if kept is not None else None)
        table = DerivedDraft(self._table, _queryable(kept))
        return self._derived(name, table, kept, finish, line, value=value_serde, stores=used)

    @overload
    def to_stream(self, *, name: str | None = ...) -> KStream[K, V]: ...

    @overload
    def to_stream(self, mapper: Callable[[K, V], K2], *, key: Any = ..., name: str | None = ...) -> KStream[K2, V]: ...

    def to_stream(
        self, mapper: Callable[[K, V], Any] | None = None, *, key: Any = None, name: str | None = None
    ) -> KStream[Any, V]:
        """The table's changes as a stream, under new keys if there is a `mapper(key, value)`."""
        line = user_line()
        if mapper is None and key is not None:
            raise TopologyError(f"to_stream(key=) says the type of a mapper's keys, and there is no mapper ({line})")
        name = self._place.draft.name("KTABLE-TOSTREAM-", name)
        stream: KStream[Any, V] = self._place.draft.handles.stream(self._place.below(name, NewValue(), line))
        return stream if mapper is None else stream.select_key(mapper, key=key)

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Hold changes back: until their window closes, or for some time; only the last of each key comes out.

        Example:
            >>> from penstock import StreamsBuilder, tumbling, until_window_closes
            >>> clicks = StreamsBuilder().stream("clicks").group_by_key().windowed_by(tumbling("1m", grace="5s")).count()
            >>> final = clicks.suppress(until_window_closes())
        """
        line = user_line()
        if not isinstance(suppressed, Suppressed):
            raise TopologyError(f"suppress takes until_window_closes() or until_time_limit(...), not {suppressed!r} ({line})")
        draft, parent = self._place.draft, self._place.name
        name = suppressed.name if suppressed.name is not None else draft.name("KTABLE-SUPPRESS-")
        grace_ms = window_grace_ms(self._place.node, (parent,)) if suppressed.final_results else 0
        store = f"{name}-store" if suppressed.name is not None else draft.store_name("KTABLE-SUPPRESS-")
        self._table.send_old_values(force=True)
        key, value = self._place.key or draft.default_key, self._place.value or draft.default_value
        operator = Suppress(parent, store, suppressed, grace_ms)
        spec = suppress_buffer_spec(store, suppressed, key=key, value=value)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_node(ProcessorNode(name, parents, operator, (), line))
            topology.add_state_store(spec, name)

        node = DraftNode(name, line, write, output_versioned=False, refuses_versioned=True)
        place = self._place.moved(name, draft.add(node, self._place.node))
        return KTable(place, SuppressDraft(self._table, store), None)

    def group_by(
        self, selector: Callable[[K, V], tuple[K2, V2]], *, key: Any = None, value: Any = None, name: str | None = None
    ) -> KGroupedTable[K2, V2]:
        """Group entries by the key of the `(key, value)` pair that `selector(key, value)` returns, to aggregate them."""
        line = user_line()
        checked(selector, "key, value", "group_by", line)
        node_name = self._place.draft.name("KTABLE-SELECT-", name)
        versioned: list[str] = []

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            operator = TableRepartitionMap(selector, bool(versioned))
            topology.add_node(ProcessorNode(node_name, parents, operator, (), line))

        node = DraftNode(node_name, line, write, on_versioned_parent=versioned.append)
        self._place.draft.add(node, self._place.node)
        self._table.send_old_values(force=True)
        place = self._place.moved(node_name, node, key=given_serde(key), value=given_serde(value))
        return place.draft.handles.grouped_table(place, name)

    @overload
    def join(self, other: KTable[K, V2], joiner: Callable[[V, V2], V3], **more: Unpack[JoinOptions]) -> KTable[K, V3]: ...

    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2], V3],
        *,
        on: Callable[[V], K2 | None],
        with_key: Literal[False] = ...,
        **more: Unpack[JoinOptions],
    ) -> KTable[K, V3]: ...

    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2], V3],
        *,
        on: Callable[[K, V], K2 | None],
        with_key: Literal[True],
        **more: Unpack[JoinOptions],
    ) -> KTable[K, V3]: ...

    def join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[[V, Any], V3],
        *,
        on: Callable[..., Any] | None = None,
        with_key: bool = False,
        store: str | Store | None = None,
        value: Any = None,
        name: str | None = None,
    ) -> KTable[K, V3]:
        """Join with another table, by key or (`on=`) by a foreign key.

        `joiner(left, right)` makes the result. With `on`, `on(value)` (`on(key, value)` with `with_key=True`) extracts from
        this table's values the key of the other table.

        Example:
            >>> from penstock import StreamsBuilder
            >>> builder = StreamsBuilder()
            >>> orders, customers = builder.table("orders"), builder.table("customers")
            >>> full = orders.join(customers, lambda order, customer: {**order, **customer}, on=lambda order: order["customer"])
        """
        return table_joins.join(
            self, other, joiner, "inner", user_line(), on=on, with_key=with_key, store=store, value=value, name=name
        )

    @overload
    def left_join(
        self, other: KTable[K, V2], joiner: Callable[[V, V2 | None], V3], **more: Unpack[JoinOptions]
    ) -> KTable[K, V3]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2 | None], V3],
        *,
        on: Callable[[V], K2 | None],
        with_key: Literal[False] = ...,
        **more: Unpack[JoinOptions],
    ) -> KTable[K, V3]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2 | None], V3],
        *,
        on: Callable[[K, V], K2 | None],
        with_key: Literal[True],
        **more: Unpack[JoinOptions],
    ) -> KTable[K, V3]: ...

    def left_join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[[V, Any], V3],
        *,
        on: Callable[..., Any] | None = None,
        with_key: bool = False,
        store: str | Store | None = None,
        value: Any = None,
        name: str | None = None,
    ) -> KTable[K, V3]:
        """As `join`, but every entry of this table has a result: without a match the joiner gets None on the right."""
        return table_joins.join(
            self, other, joiner, "left", user_line(), on=on, with_key=with_key, store=store, value=value, name=name
        )

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2 | None], V3],
        *,
        store: str | Store | None = None,
        value: Any = None,
        name: str | None = None,
    ) -> KTable[K, V3]:
        """As `join` by key, but every entry of both tables has a result; there is none by foreign key."""
        return table_joins.join(self, other, joiner, "outer", user_line(), store=store, value=value, name=name)

    # ---- inside the room ------------------------------------------------------------------------------------------

    def _kept(self, store: str | Store | None, prefix: str | None, value: Any = None) -> Materialized | None:
        """What the table is kept as; None if no store was asked for. Without a name the counter still moves."""
        if store is None:
            return None
        if isinstance(store, Store) and store.name is None and prefix is None:
            kept = materialized(self._place.draft, replace(store, name=""), "")
            kept.is_queryable = False
        else:
            kept = materialized(self._place.draft, store, prefix or "")
        kept.key = kept.key or self._place.key
        kept.value = kept.value or given_serde(value)
        return kept

    def _derived(
        self,
        name: str,
        table: DerivedDraft,
        kept: Materialized | None,
        finish: Finish,
        line: Line,
        *,
        value: Serde[Any] | None,
        stores: tuple[str, ...] = (),
    ) -> KTable[K, Any]:
        draft = self._place.draft
        store = table.store
        if store is not None and store.value is None:
            store.value = value

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            operator = finish(None if store is None else store.store_name, table.sends_old_values)
            topology.add_node(ProcessorNode(name, parents, operator, (), line))
            if store is not None:
                topology.add_state_store(store.table_spec(draft), name)
            topology.connect_processor_and_state_stores(name, *stores)

        node = DraftNode(name, line, write, output_versioned=None if kept is None else kept.is_versioned)
        key = (kept.key if kept is not None else None) or self._place.key
        place = self._place.moved(name, draft.add(node, self._place.node), key=key, value=value)
        return KTable(place, table, None if store is None else store.store_name)


class GlobalKTable(GlobalTableHandle, Generic[K, V]):
    """A table that every lane sees whole, whatever the key; made for joins with `on=`."""

    __slots__ = ("_queryable", "store_name")

    def __init__(self, store_name: str, queryable: str | None) -> None:
        self.store_name: str = store_name
        self._queryable = queryable

    @property
    def queryable_store_name(self) -> str | None:
        """The name to query this table by."""
        return self._queryable


def _queryable(kept: Materialized | None) -> Materialized | None:
    return kept if kept is not None and kept.is_queryable else None


def _ignoring_key(mapper: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def by_key(key: Any, value: Any) -> Any:
        return mapper(value)

    return by_key
