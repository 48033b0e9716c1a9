"""Aggregates of a grouped stream: one value per key, kept in a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import FAILURES
from penstock.expressions.columns.steps import Columnar, Gather, InWindows, Step
from penstock.expressions.functions import Computed
from penstock.expressions.nodes import Aggregates
from penstock.operators.counts import one_more
from penstock.operators.drops import NULL_KEY_OR_VALUE
from penstock.operators.emission import by_value
from penstock.operators.tables import keeper, stored_view
from penstock.processor import Host, Lineage, TableOperator, View
from penstock.records import Headers, Process
from penstock.state import IMMUTABLE, CachedKeyValueStore, Encoded


def gathering(aggregator: Callable[..., Any], store: str, drops_for: str, within: InWindows | None = None) -> Gather | None:
    """Return what an aggregator does as a step of columns: ready aggregates and counts; None for any other function."""
    if aggregator is one_more:
        return Gather(None, store, drops_for, within)
    node = aggregator.node if isinstance(aggregator, Computed) else None
    return Gather(node, store, drops_for, within) if isinstance(node, Aggregates) else None


@dataclass(frozen=True, slots=True)
class StreamAggregate(TableOperator, Columnar):
    """`aggregator(key, value, aggregate)` over all values of a key, starting with `initializer()`."""

    lineage: ClassVar[Lineage] = Lineage.GATHERS
    retries_what_it_reads: ClassVar[bool] = True

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old_values: bool

    def in_columns(self) -> Step | None:
        return gathering(self.aggregator, self.store, NULL_KEY_OR_VALUE)

    def bind(self, host: Host, forward: Process) -> Process:
        store = host.store(self.store)
        if isinstance(store, CachedKeyValueStore) and host.spec(self.store).serdes[0].identity:
            keeper(host, self.store, forward, self.send_old_values)
            return self._bind_held(host, store)
        initialize, aggregate = self.initializer, self.aggregator
        dropped, failed = host.dropped, host.failed
        keep, entry_of = keeper(host, self.store, forward, self.send_old_values), stored_view(host, self.store).get
        # Without a cache, Kafka Streams sends the initial aggregate as the old value of a new key; with one, it sends None.
        initial_is_old = not host.spec(self.store).cached
        # With a cache it reads the old value separately, so an aggregator may change the aggregate in place.
        reads_old = host.spec(self.store).cached and self.send_old_values

        def updated(key: Any, value: Any, timestamp: int) -> tuple[Any, Any, int]:
            entry = entry_of(key)
            if entry is None:
                start = initialize()
                return aggregate(key, value, start), start if initial_is_old else None, timestamp
            old = (entry_of(key) or entry)[0] if reads_old else entry[0]
            return aggregate(key, value, entry[0]), old, max(timestamp, entry[1])

        attempt = host.retried(updated)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                dropped(NULL_KEY_OR_VALUE)
                return
            try:
                new, old, time = attempt(key, value, timestamp)
                keep(key, new, old, time, headers, timestamp)
            except FAILURES as error:
                failed(error, key)

        return process

    def _bind_held(self, host: Host, store: CachedKeyValueStore[Any, Any]) -> Process:
        """Bind with a cache, directly on the store's held entries: the hot path of most applications."""
        initialize, aggregate = self.initializer, self.aggregator
        dropped, failed, held, load = host.dropped, host.failed, store.held, store.load
        hold, deserialize = by_value(host.spec(self.store)), host.spec(self.store).serdes[1].deserialize

        def updated(key: Any, value: Any, timestamp: int) -> tuple[Any, int]:
            entry: Any = held.get(key) or load(key)
            if entry is None or entry[0] is None:
                return aggregate(key, value, initialize()), timestamp
            before, time = entry[0], entry[1]
            if type(before) is Encoded:
                before = deserialize(before.raw)
            return aggregate(key, value, before), max(timestamp, time)

        attempt = host.retried(updated)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                dropped(NULL_KEY_OR_VALUE)
                return
            try:
                new, time = attempt(key, value, timestamp)
                if type(new) not in IMMUTABLE:
                    new = hold(new)
                if key in held:
                    del held[key]  # then set again: the flush follows the order of the last puts
                held[key] = (new, time, key, headers, timestamp)
            except FAILURES as error:
                failed(error, key)

        return process

    def view(self, host: Host) -> View:
        return stored_view(host, self.store)
