"""`KGroupedTable`: a table grouped by another key, about to be aggregated again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.dsl.aggregations import Operate, kept_as, one_less, one_more, zero
from penstock.dsl.draft import DraftNode
from penstock.dsl.place import Place
from penstock.dsl.repartitions import SUFFIX, write_exchange
from penstock.dsl.stores import Materialized, Store
from penstock.dsl.table_drafts import AggregateDraft
from penstock.operators.table_aggregates import TableAggregate, TableReduce
from penstock.processor import TableOperator
from penstock.serdes import ChangeSerde, Int64
from penstock.topology import Line, ProcessorNode, Topology, user_line
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from penstock.dsl.tables import KTable

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class KGroupedTable(Generic[K, V]):
    """A table grouped by another key: a changed entry is subtracted from its old group and added to its new one."""

    __slots__ = ("_name", "_place", "_repartition")

    def __init__(self, place: Place, name: str | None) -> None:
        self._place = place
        self._name = name
        self._repartition: tuple[DraftNode, str] | None = None

    def count(self, *, store: str | Store | None = None, name: str | None = None) -> KTable[K, int]:
        """How many entries each group has."""
        kept = kept_as(self._place.draft, store, "KTABLE-AGGREGATE-", self._place.key, Int64())

        def operate(store: str, old: bool) -> TableOperator:
            return TableAggregate(store, zero, one_more, one_less, old)

        return self._build("KTABLE-AGGREGATE-", name, kept, operate, user_line())

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each group: `adder(aggregate, new)` and `subtractor(aggregate, old)`."""
        line = user_line()
        checked(adder, "aggregate, value", "reduce's adder", line)
        checked(subtractor, "aggregate, value", "reduce's subtractor", line)
        kept = kept_as(self._place.draft, store, "KTABLE-AGGREGATE-", self._place.key, self._place.value)
        return self._build("KTABLE-REDUCE-", name, kept, lambda store, old: TableReduce(store, adder, subtractor, old), line)

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        *,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Combine the values of each group: `adder(key, new, aggregate)` and `subtractor(key, old, aggregate)`."""
        line = user_line()
        checked(initializer, "", "aggregate's initializer", line)
        checked(adder, "key, value, aggregate", "aggregate's adder", line)
        checked(subtractor, "key, value, aggregate", "aggregate's subtractor", line)
        kept = kept_as(self._place.draft, store, "KTABLE-AGGREGATE-", self._place.key, None, value)

        def operate(store: str, old: bool) -> TableOperator:
            return TableAggregate(store, initializer, adder, subtractor, old)

        return self._build("KTABLE-AGGREGATE-", name, kept, operate, line)

    def _build(self, prefix: str, given: str | None, kept: Materialized, operate: Operate, line: Line) -> KTable[K, Any]:
        here = self._place
        draft = here.draft
        sink = draft.name("KSTREAM-SINK-", given, "-sink")
        source = draft.name("KSTREAM-SOURCE-", given, "-source")
        name = draft.name(prefix, given)
        topic = (self._name if self._name is not None else kept.store_name) + SUFFIX
        if self._repartition is None or self._name is None:
            self._repartition = (self._exchange(topic, sink, source, line), source)
        node, source = self._repartition
        draft.add(node, here.node)
        table = AggregateDraft(kept.store_name)
        spec = kept.table_spec(draft)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_node(ProcessorNode(name, parents, operate(spec.name, table.sends_old_values), (), line))
            topology.add_state_store(spec, name)

        aggregate = draft.add(DraftNode(name, line, write, output_versioned=kept.is_versioned), node)
        place = here.moved(name, aggregate, rekeyed=False, key=kept.key, value=kept.value, sources=frozenset({source}))
        return draft.handles.table(place, table, kept.queryable_name)

    def _exchange(self, topic: str, sink: str, source: str, line: Line) -> DraftNode:
        key = self._place.key or self._place.draft.default_key
        value = ChangeSerde(self._place.value or self._place.draft.default_value)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            write_exchange(topology, parents, topic, sink, source, key, value, line)

        return DraftNode(source, line, write)
