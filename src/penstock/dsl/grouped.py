"""Grouped, windowed and cogrouped handles: records that share a key, about to become one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.dsl.draft import Draft, DraftNode
from penstock.dsl.place import Place, given_serde
from penstock.dsl.repartitions import SUFFIX, repartition, write_exchange
from penstock.dsl.stores import Materialized, Store, materialized
from penstock.dsl.table_drafts import AggregateDraft, MergeDraft
from penstock.errors import TopologyError
from penstock.operators.aggregates import StreamAggregate, StreamReduce
from penstock.operators.sessions import SessionAggregate
from penstock.operators.sliding import SlidingAggregate
from penstock.operators.table_aggregates import TableAggregate, TablePassThrough, TableReduce
from penstock.operators.windowed import WindowAggregate
from penstock.processor import TableOperator
from penstock.serdes import ChangeSerde, Int64, Serde, SessionWindowed, TimeWindowed
from penstock.state import StoreSpec
from penstock.timing import MAX_MS, SessionWindows, SlidingWindows, UnlimitedWindows, Windows
from penstock.topology import Line, ProcessorNode, Topology, user_line
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from penstock.dsl.tables import KTable

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

AnyWindows = Windows | SlidingWindows | SessionWindows
Operate = Callable[[str, bool], TableOperator]
"""Makes the aggregate's operator when the draft is written: from the store's name and whether old values are sent."""


class EmitStrategy(Enum):
    """When a windowed aggregation speaks: at every update, or once, when the window closes."""

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"


def _zero() -> int:
    return 0


def _one_more(key: Any, value: Any, count: int) -> int:
    return count + 1


def _one_less(key: Any, value: Any, count: int) -> int:
    return count - 1


def _sum_of_counts(key: Any, left: int, right: int) -> int:
    return left + right


def _nothing() -> None:
    return None


def _reducing(reducer: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """A reducer as an aggregator: the first value is the first aggregate."""

    def aggregator(key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(aggregate, value)

    return aggregator


def _merging(aggregator: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
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


def _aggregated(
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
    return draft.handles.table(place, table, kept.store_name if kept.is_queryable else None)


def _kept(
    draft: Draft,
    store: str | Store | None,
    prefix: str,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    given_value: Any = None,
) -> Materialized:
    kept = materialized(draft, store, prefix)
    kept.key = kept.key or key
    kept.value = given_serde(given_value) or kept.value or value
    return kept


class KGroupedStream(Generic[K, V]):
    """A stream grouped by key."""

    __slots__ = ("_group",)

    def __init__(self, place: Place, name: str | None) -> None:
        self._group = Group(place, name)

    def count(self, *, store: str | Store | None = None, name: str | None = None) -> KTable[K, int]:
        """How many records each key has had; null values do not count."""
        line, place = user_line(), self._group.place
        if isinstance(store, Store) and store.name is None:
            place.draft.store_name("KSTREAM-AGGREGATE-")  # Kafka Streams skips a number here, and names are a contract
        kept = _kept(place.draft, store, "KSTREAM-AGGREGATE-", place.key, Int64())
        name = place.draft.name("KSTREAM-AGGREGATE-", name)
        return self._build(name, kept, lambda store, old: StreamAggregate(store, _zero, _one_more, old), line)

    def reduce(self, reducer: Callable[[V, V], V], *, store: str | Store | None = None, name: str | None = None) -> KTable[K, V]:
        """Combine the values of each key: `reducer(aggregate, value)`, starting with the first value."""
        line, place = user_line(), self._group.place
        checked(reducer, "aggregate, value", "reduce", line)
        kept = _kept(place.draft, store, "KSTREAM-REDUCE-", place.key, place.value)
        name = place.draft.name("KSTREAM-REDUCE-", name)
        return self._build(name, kept, lambda store, old: StreamReduce(store, reducer, old), line)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Combine the values of each key: `aggregator(key, value, aggregate)`, starting with `initializer()`.

        `value=` (or the store's) says the aggregate's type.

        Example:
            >>> from penstock import StreamsBuilder
            >>> orders = StreamsBuilder().stream("orders").group_by_key()
            >>> totals = orders.aggregate(float, lambda _, order, total: total + order["amount"], value=float)
        """
        line, place = user_line(), self._group.place
        checked(initializer, "", "aggregate's initializer", line)
        checked(aggregator, "key, value, aggregate", "aggregate", line)
        kept = _kept(place.draft, store, "KSTREAM-AGGREGATE-", place.key, None, value)
        name = place.draft.name("KSTREAM-AGGREGATE-", name)
        return self._build(name, kept, lambda store, old: StreamAggregate(store, initializer, aggregator, old), line)

    def _build(self, name: str, kept: Materialized, operate: Operate, line: Line) -> KTable[K, Any]:
        spec = kept.table_spec(self._group.place.draft)
        return _aggregated(self._group, name, kept, spec, operate, line, key=kept.key)

    def windowed_by(self, windows: AnyWindows) -> WindowedKStream[K, V]:
        """Aggregate per window: `tumbling(...)`, `hopping(...)`, `sliding(...)`, `session(...)`, `unlimited()`, or your own.

        Windows of your own are any object with the four members of `penstock.timing.Windows`.
        """
        return WindowedKStream(self._group, windows)

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Aggregate several grouped streams into one table; each brings its own `aggregator(key, value, aggregate)`."""
        empty: CogroupedKStream[K, A] = CogroupedKStream(())
        return empty.cogroup(self, aggregator)


class WindowedKStream(Generic[K, V]):
    """A grouped stream cut into windows."""

    __slots__ = ("_emit", "_group", "_windows")

    def __init__(self, group: Group, windows: AnyWindows, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE) -> None:
        self._group = group
        self._windows = windows
        self._emit = emit

    def emit_strategy(self, strategy: EmitStrategy) -> WindowedKStream[K, V]:
        """Emit every update (the default), or each window once, when it closes."""
        if strategy is EmitStrategy.ON_WINDOW_CLOSE and isinstance(self._windows, UnlimitedWindows):
            raise TopologyError(f"unlimited windows never close, so nothing would ever be emitted ({user_line()})")
        return WindowedKStream(self._group, self._windows, strategy)

    def count(self, *, store: str | Store | None = None, name: str | None = None) -> KTable[Any, int]:
        """How many records each key has had in each window."""
        line, place = user_line(), self._group.place
        if isinstance(store, Store) and store.name is None and not isinstance(self._windows, SlidingWindows):
            place.draft.store_name("KSTREAM-AGGREGATE-")  # as for the plain count
        kept = _kept(place.draft, store, "KSTREAM-AGGREGATE-", place.key, Int64())
        return self._build("KSTREAM-AGGREGATE-", name, kept, _zero, _one_more, _sum_of_counts, line)

    def reduce(
        self, reducer: Callable[[V, V], V], *, store: str | Store | None = None, name: str | None = None
    ) -> KTable[Any, V]:
        """Combine the values of each key in each window with `reducer(aggregate, value)`."""
        line, place = user_line(), self._group.place
        checked(reducer, "aggregate, value", "reduce", line)
        kept = _kept(place.draft, store, "KSTREAM-REDUCE-", place.key, place.value)
        aggregator = _reducing(reducer)
        return self._build("KSTREAM-REDUCE-", name, kept, _nothing, aggregator, _merging(aggregator), line)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A] | None = None,
        *,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[Any, A]:
        """Combine the values of each key in each window; session windows also need `merger(key, one, two)`."""
        line, place = user_line(), self._group.place
        _check_aggregate(initializer, aggregator, merger, self._windows, line)
        kept = _kept(place.draft, store, "KSTREAM-AGGREGATE-", place.key, None, value)
        return self._build("KSTREAM-AGGREGATE-", name, kept, initializer, aggregator, merger, line)

    def _build(
        self,
        prefix: str,
        given: str | None,
        kept: Materialized,
        initializer: Callable[[], Any],
        aggregator: Callable[..., Any],
        merger: Callable[..., Any] | None,
        line: Line,
    ) -> KTable[Any, Any]:
        draft = self._group.place.draft
        name = draft.name(prefix, given)
        on_close = self._emit is EmitStrategy.ON_WINDOW_CLOSE
        plan = _windowed(self._windows, kept, draft, initializer, merger, on_close)
        operate: Operate = lambda store, old: plan.operator(store, aggregator, old)  # noqa: E731 - a value to pass on
        return _aggregated(self._group, name, kept, plan.spec, operate, line, key=plan.key, grace_ms=plan.grace_ms)


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What the kind of window decides: the store, the key of the result, the grace period, the operator."""

    spec: StoreSpec
    key: Serde[Any]
    grace_ms: int
    operator: Callable[[str, Callable[..., Any], bool], TableOperator]


def _windowed(
    windows: AnyWindows,
    kept: Materialized,
    draft: Draft,
    initializer: Callable[[], Any],
    merger: Callable[..., Any] | None,
    on_close: bool,
) -> WindowPlan:
    key = kept.key or draft.default_key
    if isinstance(windows, SessionWindows):
        merge = merger if merger is not None else _no_merger
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


def _no_merger(key: Any, one: Any, two: Any) -> Any:
    raise TopologyError("sessions need a merger")


def _check_aggregate(
    initializer: Callable[..., Any],
    aggregator: Callable[..., Any] | None,
    merger: Callable[..., Any] | None,
    windows: AnyWindows | None,
    line: Line,
) -> None:
    checked(initializer, "", "aggregate's initializer", line)
    if aggregator is not None:
        checked(aggregator, "key, value, aggregate", "aggregate", line)
    if isinstance(windows, SessionWindows) != (merger is not None):
        raise TopologyError(f"a merger(key, one, two) goes with session windows, and only with them ({line})")
    if merger is not None:
        checked(merger, "key, one, two", "aggregate's merger", line)


Part = tuple[KGroupedStream[Any, Any], Callable[..., Any]]


class CogroupedKStream(Generic[K, A]):
    """Several grouped streams that feed one aggregate."""

    __slots__ = ("_parts", "_windows")

    def __init__(self, parts: tuple[Part, ...], windows: AnyWindows | None = None) -> None:
        self._parts = parts
        self._windows = windows

    def cogroup(self, grouped: KGroupedStream[K, Any], aggregator: Callable[[K, Any, A], A]) -> CogroupedKStream[K, A]:
        """Add a grouped stream with its own `aggregator(key, value, aggregate)`."""
        checked(aggregator, "key, value, aggregate", "cogroup", user_line())
        known = {id(part[0]): part for part in self._parts}
        known[id(grouped)] = (grouped, aggregator)
        return CogroupedKStream(tuple(known.values()), self._windows)

    def windowed_by(self, windows: AnyWindows) -> CogroupedKStream[K, A]:
        """Aggregate per window."""
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
        _check_aggregate(initializer, None, merger, self._windows, line)
        first = self._parts[0][0]._group.place
        draft = first.draft
        kept = _kept(draft, store, "COGROUPKSTREAM-AGGREGATE-", first.key, None, value)
        plan = None if self._windows is None else _windowed(self._windows, kept, draft, initializer, merger, on_close=False)
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
        for grouped, _ in self._parts:
            node, own = grouped._group.exchanged(kept, line)
            parents.append(node)
            sources |= own
        self._parts[0][0]._group.place.draft.copartitioned.append(sources)
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
        first = self._parts[0][0]._group.place
        place = replace(first, node=node, name=merge, key=key, value=spec.value, sources=frozenset({merge}), rekeyed=False)
        return draft.handles.table(place, table, kept.store_name if kept.is_queryable else None)


def _part_operator(plan: WindowPlan | None, initializer: Callable[[], Any], aggregator: Callable[..., Any]) -> Operate:
    if plan is None:
        return lambda store, old: StreamAggregate(store, initializer, aggregator, old)
    return lambda store, old: plan.operator(store, aggregator, old)


def _cogroup_part(name: str, spec: StoreSpec, table: AggregateDraft, operate: Operate, line: Line) -> DraftNode:
    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(name, parents, operate(spec.name, table.sends_old_values), (), line))
        topology.add_state_store(spec, name)

    return DraftNode(name, line, write)


class KGroupedTable(Generic[K, V]):
    """A table grouped by another key: a changed entry is subtracted from its old group and added to its new one."""

    __slots__ = ("_name", "_place", "_repartition")

    def __init__(self, place: Place, name: str | None) -> None:
        self._place = place
        self._name = name
        self._repartition: tuple[DraftNode, str] | None = None

    def count(self, *, store: str | Store | None = None, name: str | None = None) -> KTable[K, int]:
        """How many entries each group has."""
        kept = _kept(self._place.draft, store, "KTABLE-AGGREGATE-", self._place.key, Int64())
        operate: Operate = lambda store, old: TableAggregate(store, _zero, _one_more, _one_less, old)  # noqa: E731
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
        kept = _kept(self._place.draft, store, "KTABLE-AGGREGATE-", self._place.key, self._place.value)
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
        kept = _kept(self._place.draft, store, "KTABLE-AGGREGATE-", self._place.key, None, value)
        operate: Operate = lambda store, old: TableAggregate(store, initializer, adder, subtractor, old)  # noqa: E731
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
        return draft.handles.table(place, table, kept.store_name if kept.is_queryable else None)

    def _exchange(self, topic: str, sink: str, source: str, line: Line) -> DraftNode:
        key = self._place.key or self._place.draft.default_key
        value = ChangeSerde(self._place.value or self._place.draft.default_value)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            write_exchange(topology, parents, topic, sink, source, key, value, line)

        return DraftNode(source, line, write)
