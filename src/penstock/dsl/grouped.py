"""Grouped and windowed streams: records that share a key, about to become one value."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.dsl.aggregations import (
    AnyWindows,
    Group,
    Operate,
    aggregated,
    check_aggregate,
    check_windows,
    kept_as,
    merging,
    nothing,
    one_more,
    reducing,
    sum_of_counts,
    window_plan,
    zero,
)
from penstock.dsl.cogrouped import CogroupedKStream
from penstock.dsl.place import Place
from penstock.dsl.stores import Materialized, Store
from penstock.errors import TopologyError
from penstock.operators.aggregates import StreamAggregate
from penstock.processor import TableOperator
from penstock.records import Windowed
from penstock.serdes import Int64
from penstock.timing import SlidingWindows, UnlimitedWindows
from penstock.topology import Line, user_line
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from penstock.dsl.tables import KTable

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class EmitStrategy(Enum):
    """When a windowed aggregation speaks: at every update, or once, when the window closes."""

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"


class KGroupedStream(Generic[K, V]):
    """A stream grouped by key."""

    __slots__ = ("_group",)

    def __init__(self, place: Place, name: str | None) -> None:
        self._group = Group(place, name)

    @property
    def group(self) -> Group:
        """Where the group stands in the draft."""
        return self._group

    def count(self, *, store: str | Store | None = None, name: str | None = None) -> KTable[K, int]:
        """How many records each key has had; null values do not count."""
        line, place = user_line(), self._group.place
        if isinstance(store, Store) and store.name is None:
            place.draft.store_name("KSTREAM-AGGREGATE-")  # Kafka Streams skips a number here, and names are a contract
        kept = kept_as(place.draft, store, "KSTREAM-AGGREGATE-", place.key, Int64())
        name = place.draft.name("KSTREAM-AGGREGATE-", name)
        return self._build(name, kept, lambda store, old: StreamAggregate(store, zero, one_more, old), line)

    def reduce(self, reducer: Callable[[V, V], V], *, store: str | Store | None = None, name: str | None = None) -> KTable[K, V]:
        """Combine the values of each key: `reducer(aggregate, value)`, starting with the first value."""
        line, place = user_line(), self._group.place
        checked(reducer, "aggregate, value", "reduce", line)
        kept = kept_as(place.draft, store, "KSTREAM-REDUCE-", place.key, place.value)
        name = place.draft.name("KSTREAM-REDUCE-", name)
        return self._build(name, kept, lambda store, old: StreamAggregate(store, nothing, reducing(reducer), old), line)

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
        kept = kept_as(place.draft, store, "KSTREAM-AGGREGATE-", place.key, None, value)
        name = place.draft.name("KSTREAM-AGGREGATE-", name)
        return self._build(name, kept, lambda store, old: StreamAggregate(store, initializer, aggregator, old), line)

    def _build(self, name: str, kept: Materialized, operate: Operate, line: Line) -> KTable[K, Any]:
        spec = kept.table_spec(self._group.place.draft)
        return aggregated(self._group, name, kept, spec, operate, line, key=kept.key)

    def windowed_by(self, windows: AnyWindows) -> WindowedKStream[K, V]:
        """Aggregate per window: `tumbling(...)`, `hopping(...)`, `sliding(...)`, `session(...)`, `unlimited()`, or your own.

        Windows of your own are any object with the four members of `penstock.timing.Windows`.
        """
        check_windows(windows, user_line())
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
        strategy = EmitStrategy(strategy)
        if strategy is EmitStrategy.ON_WINDOW_CLOSE and isinstance(self._windows, UnlimitedWindows):
            raise TopologyError(f"unlimited windows never close, so nothing would ever be emitted ({user_line()})")
        return WindowedKStream(self._group, self._windows, strategy)

    def count(self, *, store: str | Store | None = None, name: str | None = None) -> KTable[Windowed[K], int]:
        """How many records each key has had in each window."""
        line, place = user_line(), self._group.place
        if isinstance(store, Store) and store.name is None and not isinstance(self._windows, SlidingWindows):
            place.draft.store_name("KSTREAM-AGGREGATE-")  # as for the plain count
        kept = kept_as(place.draft, store, "KSTREAM-AGGREGATE-", place.key, Int64())
        return self._build("KSTREAM-AGGREGATE-", name, kept, zero, one_more, sum_of_counts, line)

    def reduce(
        self, reducer: Callable[[V, V], V], *, store: str | Store | None = None, name: str | None = None
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key in each window with `reducer(aggregate, value)`."""
        line, place = user_line(), self._group.place
        checked(reducer, "aggregate, value", "reduce", line)
        kept = kept_as(place.draft, store, "KSTREAM-REDUCE-", place.key, place.value)
        aggregator = reducing(reducer)
        return self._build("KSTREAM-REDUCE-", name, kept, nothing, aggregator, merging(aggregator), line)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A] | None = None,
        *,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Combine the values of each key in each window; session windows also need `merger(key, one, two)`."""
        line, place = user_line(), self._group.place
        check_aggregate(initializer, aggregator, merger, self._windows, line)
        kept = kept_as(place.draft, store, "KSTREAM-AGGREGATE-", place.key, None, value)
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
        plan = window_plan(self._windows, kept, draft, initializer, merger, on_close)

        def operate(store: str, old: bool) -> TableOperator:
            return plan.operator(store, aggregator, old)

        return aggregated(self._group, name, kept, plan.spec, operate, line, key=plan.key, grace_ms=plan.grace_ms)
