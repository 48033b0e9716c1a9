"""Aggregates of grouped tables, which add and subtract rows, and the table that a cogroup's aggregates share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import FAILURES
from penstock.operators.tables import keeper, stored_view
from penstock.processor import Host, Lineage, TableOperator, View
from penstock.records import NO_TIMESTAMP, Change, Headers, Process

_NO_ENTRY = (None, NO_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class TableAggregate(TableOperator):
    """One aggregate per group: old rows are subtracted before new rows are added."""

    lineage: ClassVar[Lineage] = Lineage.GATHERS
    retries_what_it_reads: ClassVar[bool] = True

    store: str
    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    send_old_values: bool

    def bind(self, host: Host, forward: Process) -> Process:
        initializer, adder, subtractor, failed = self.initializer, self.adder, self.subtractor, host.failed
        entry = stored_view(host, self.store).get
        keep = keeper(host, self.store, forward, self.send_old_values)

        def updated(key: Any, change: Change, timestamp: int) -> tuple[Any, Any, int]:
            new, old, _ = change
            before, before_timestamp = entry(key) or _NO_ENTRY
            aggregate, result_timestamp = before, timestamp
            if old is not None and before is not None:
                aggregate = subtractor(key, old, before)
                result_timestamp = max(timestamp, before_timestamp)
            if new is not None:
                aggregate = adder(key, new, initializer() if aggregate is None else aggregate)
                result_timestamp = max(timestamp, before_timestamp)
            return aggregate, before, result_timestamp

        attempt = host.retried(updated)

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                if key is None:
                    raise ValueError("The key is None: a table's aggregate needs a key.")
                aggregate, before, result_timestamp = attempt(key, change, timestamp)
                keep(key, aggregate, before, result_timestamp, headers, timestamp)
            except FAILURES as error:
                failed(error, key)

        return process

    def view(self, host: Host) -> View:
        return stored_view(host, self.store)


@dataclass(frozen=True, slots=True)
class TableReduce(TableOperator):
    """Like `TableAggregate`, for aggregates of the same type as the rows: a group starts with its first row."""

    lineage: ClassVar[Lineage] = Lineage.GATHERS
    retries_what_it_reads: ClassVar[bool] = True

    store: str
    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]
    send_old_values: bool

    def bind(self, host: Host, forward: Process) -> Process:
        adder, subtractor, failed = self.adder, self.subtractor, host.failed
        entry = stored_view(host, self.store).get
        keep = keeper(host, self.store, forward, self.send_old_values)

        def updated(key: Any, change: Change, timestamp: int) -> tuple[Any, Any, int]:
            new, old, _ = change
            before, before_timestamp = entry(key) or _NO_ENTRY
            aggregate, result_timestamp = before, timestamp
            if old is not None and before is not None:
                aggregate = subtractor(before, old)
                result_timestamp = max(timestamp, before_timestamp)
            if new is not None:
                if aggregate is None:
                    aggregate = new
                else:
                    aggregate = adder(aggregate, new)
                    result_timestamp = max(timestamp, before_timestamp)
            return aggregate, before, result_timestamp

        attempt = host.retried(updated)

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                if key is None:
                    raise ValueError("The key is None: a table's aggregate needs a key.")
                aggregate, before, result_timestamp = attempt(key, change, timestamp)
                keep(key, aggregate, before, result_timestamp, headers, timestamp)
            except FAILURES as error:
                failed(error, key)

        return process

    def view(self, host: Host) -> View:
        return stored_view(host, self.store)


@dataclass(frozen=True, slots=True)
class TablePassThrough(TableOperator):
    """Merges the aggregates of a cogroup, which share a store, into one table."""

    parents: tuple[str, ...]
    store: str
    send_old_values: bool

    def bind(self, host: Host, forward: Process) -> Process:
        return forward

    def view(self, host: Host) -> View:
        return host.view(self.parents[0])  # any of them will do: they share the store
