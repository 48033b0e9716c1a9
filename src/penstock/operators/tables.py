"""Tables derived from one topic or one table: as it is, filtered, mapped, transformed, re-keyed.

A table may be kept in a store, timestamped or versioned; one without a store is read through its parent's view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from penstock.errors import FAILURES, StateError, TopologyError
from penstock.operators.drops import NULL_KEY
from penstock.operators.emission import by_value, emitter
from penstock.operators.processors import Begun, Context, SetUp
from penstock.processor import Host, Lineage, Operator, TableOperator, ValueTransformer, View
from penstock.records import NO_TIMESTAMP, Change, Headers, Process, ValueAndTimestamp
from penstock.state import NEWEST, NOT_PUT, CachedKeyValueStore, StoreKind

Keep = Callable[[Any, Any, Any, int, Headers, int], None]
"""`keep(key, new, old, timestamp, headers, record_timestamp)`: write a table's new value to its store and forward the change."""


def keeper(host: Host, store: str, forward: Process, send_old_values: bool) -> Keep:
    """Return how a table kept in `store` is updated."""
    kept = host.store(store)
    if isinstance(kept, CachedKeyValueStore):
        return _holder(host, kept, forward, send_old_values)
    put = kept.put
    emit = emitter(host, store, forward, send_old_values)
    hold = by_value(host.spec(store))

    def keep(key: Any, new: Any, old: Any, timestamp: int, headers: Headers, record_timestamp: int) -> None:
        new = hold(new)
        put(key, new, timestamp)
        emit(key, Change(new, old), timestamp, headers, record_timestamp)

    def keep_version(key: Any, new: Any, old: Any, timestamp: int, headers: Headers, record_timestamp: int) -> None:
        valid_to = put(key, new, timestamp)
        if valid_to != NOT_PUT:
            emit(key, Change(new, old, valid_to == NEWEST), timestamp, headers, record_timestamp)

    return keep_version if is_versioned(host, store) else keep


def _holder(host: Host, kept: CachedKeyValueStore[Any, Any], forward: Process, send_old_values: bool) -> Keep:
    """Return how a table with a cache is updated: the store holds the value and forwards it when the epoch ends."""
    host.on_flush(kept.name, lambda: kept.flush(forward, send_old_values))
    hold = kept.hold

    def keep(key: Any, new: Any, old: Any, timestamp: int, headers: Headers, record_timestamp: int) -> None:
        hold(key, new, timestamp, headers, record_timestamp)

    return keep


def old_value_reader(host: Host, store: str | None, send_old_values: bool) -> Callable[[Any], Any] | None:
    """Return how to read the value that an update replaces; None if the table has no store or the old value is not needed.

    A cache needs it even when old values are not sent: it drops the deletion of a missing entry.
    """
    if store is None or not (send_old_values or host.spec(store).cached):
        return None
    entry = stored_view(host, store).get

    def old_value(key: Any) -> Any:
        found = entry(key)
        return None if found is None else found[0]

    return old_value


def stored_view(host: Host, store: str) -> View:
    """Return the view of a table kept in `store`."""
    kept = host.store(store)
    if not is_versioned(host, store):
        return View(kept.entry, unversioned(store), False)

    def get(key: Any) -> ValueAndTimestamp[Any] | None:
        found = kept.get(key)
        return None if found is None else ValueAndTimestamp(found[0], found[1])

    def get_as_of(key: Any, timestamp: int) -> ValueAndTimestamp[Any] | None:
        found = kept.get(key, timestamp)
        return None if found is None else ValueAndTimestamp(found[0], found[1])

    return View(get, get_as_of, True)


def derived_view(parent: View, derive: Callable[[Any, ValueAndTimestamp[Any] | None], ValueAndTimestamp[Any] | None]) -> View:
    """Return the view of a table without a store: `derive` applied to its parent's entry."""
    parent_get, parent_get_as_of = parent.get, parent.get_as_of

    def get(key: Any) -> ValueAndTimestamp[Any] | None:
        return derive(key, parent_get(key))

    def get_as_of(key: Any, timestamp: int) -> ValueAndTimestamp[Any] | None:
        return derive(key, parent_get_as_of(key, timestamp))

    return View(get, get_as_of, parent.is_versioned)


def unversioned(table: str) -> Callable[[Any, int], NoReturn]:
    """Return a `get_as_of` that raises, for a table without history."""

    def get_as_of(key: Any, timestamp: int) -> NoReturn:
        raise StateError(f"{table!r} cannot be read as of a time: it is not in a versioned store.")

    return get_as_of


def is_versioned(host: Host, store: str) -> bool:
    """Return whether the store keeps history."""
    return host.spec(store).kind is StoreKind.VERSIONED


@dataclass(frozen=True, slots=True)
class TableSource(TableOperator):
    """Reads a stream of plain values as a table: each value replaces its key's previous one."""

    lineage: ClassVar[Lineage] = Lineage.REPLACES

    store: str | None
    send_old_values: bool

    def bind(self, host: Host, forward: Process) -> Process:
        failed, dropped = host.failed, host.dropped
        keep = None if self.store is None else keeper(host, self.store, forward, self.send_old_values)
        # A cache reads the old value itself, once per key and epoch.
        cached = self.store is not None and isinstance(host.store(self.store), CachedKeyValueStore)
        old_value = None if cached else old_value_reader(host, self.store, self.send_old_values)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if key is None:
                    dropped(NULL_KEY)
                elif keep is None:
                    forward(key, Change(value), timestamp, headers)
                else:
                    old = None if old_value is None else old_value(key)
                    keep(key, value, old, timestamp, headers, timestamp)
            except FAILURES as error:
                failed(error, key)

        return process

    def view(self, host: Host) -> View:
        if self.store is None:
            raise TopologyError(f"{host.node}: the table is read by key and therefore needs a store.")
        return stored_view(host, self.store)


@dataclass(frozen=True, slots=True)
class TableFilter(TableOperator):
    """Keeps the rows for which the predicate holds (or, negated, does not); a row that no longer passes is deleted.

    With old values it knows which rows passed before, and forwards no deletion of rows that never did. In a versioned table
    such a deletion is part of the history and is forwarded.
    """

    parent_table: str
    predicate: Callable[[Any, Any], Any]
    negate: bool
    store: str | None
    send_old_values: bool
    versioned: bool

    def bind(self, host: Host, forward: Process) -> Process:
        predicate, negate, failed = self.predicate, self.negate, host.failed
        keep = None if self.store is None else keeper(host, self.store, forward, self.send_old_values)
        old_value = old_value_reader(host, self.store, self.send_old_values)
        computes_old = self.store is None and self.send_old_values
        omits_unseen = self.send_old_values and not self.versioned

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                new, old, is_latest = change
                if new is not None and bool(predicate(key, new)) is negate:
                    new = None
                if old_value is not None:
                    old = old_value(key)
                elif not computes_old or (old is not None and bool(predicate(key, old)) is negate):
                    old = None
                if omits_unseen and new is None and old is None:
                    return
                if keep is None:
                    forward(key, Change(new, old, is_latest), timestamp, headers)
                else:
                    keep(key, new, old, timestamp, headers, timestamp)
            except FAILURES as error:
                failed(error, key)

        return process

    def view(self, host: Host) -> View:
        if self.store is not None:
            return stored_view(host, self.store)
        predicate, negate = self.predicate, self.negate

        def passing(key: Any, entry: ValueAndTimestamp[Any] | None) -> ValueAndTimestamp[Any] | None:
            return None if entry is None or bool(predicate(key, entry[0])) is negate else entry

        return derived_view(host.view(self.parent_table), passing)


@dataclass(frozen=True, slots=True)
class TableMapValues(TableOperator):
    """Replaces each row's value; deletions pass without a call of the mapper."""

    parent_table: str
    mapper: Callable[[Any, Any], Any]
    store: str | None
    send_old_values: bool

    def bind(self, host: Host, forward: Process) -> Process:
        mapper, failed = self.mapper, host.failed
        keep = None if self.store is None else keeper(host, self.store, forward, self.send_old_values)
        old_value = old_value_reader(host, self.store, self.send_old_values)
        computes_old = self.store is None and self.send_old_values

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                new, old, is_latest = change
                if new is not None:
                    new = mapper(key, new)
                if old_value is not None:
                    old = old_value(key)
                elif not computes_old:
                    old = None
                elif old is not None:
                    old = mapper(key, old)
                if keep is None:
                    forward(key, Change(new, old, is_latest), timestamp, headers)
                else:
                    keep(key, new, old, timestamp, headers, timestamp)
            except FAILURES as error:
                failed(error, key)

        return process

    def view(self, host: Host) -> View:
        if self.store is not None:
            return stored_view(host, self.store)
        mapper = self.mapper

        def mapped(key: Any, entry: ValueAndTimestamp[Any] | None) -> ValueAndTimestamp[Any] | None:
            return None if entry is None else dated(mapper(key, entry[0]), entry[1])

        return derived_view(host.view(self.parent_table), mapped)


@dataclass(frozen=True, slots=True)
class TableTransformValues(TableOperator):
    """Replaces each row's value by a user's `ValueTransformer`, which may use stores and is called for deletions too."""

    runs_user_objects: ClassVar[bool] = True

    parent_table: str
    supplier: Callable[..., ValueTransformer[Any, Any, Any]]
    stores: tuple[str, ...]
    store: str | None
    send_old_values: bool
    setup: SetUp = None

    def bind(self, host: Host, forward: Process) -> Process:
        transform, failed = self._transform(host), host.failed
        keep = None if self.store is None else keeper(host, self.store, forward, self.send_old_values)
        old_value = old_value_reader(host, self.store, self.send_old_values)
        computes_old = self.store is None and self.send_old_values

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                new, old, is_latest = change
                new = transform(key, new)
                if keep is None:
                    old = transform(key, old) if computes_old else None
                    forward(key, Change(new, old, is_latest), timestamp, headers)
                else:
                    keep(key, new, None if old_value is None else old_value(key), timestamp, headers, timestamp)
            except FAILURES as error:
                failed(error, key)

        return process

    def view(self, host: Host) -> View:
        if self.store is not None:
            return stored_view(host, self.store)
        transform = self._transform(host, "view")

        def transformed(key: Any, entry: ValueAndTimestamp[Any] | None) -> ValueAndTimestamp[Any] | None:
            value, timestamp = (None, NO_TIMESTAMP) if entry is None else entry
            return dated(transform(key, value), timestamp)

        return derived_view(host.view(self.parent_table), transformed)

    def _transform(self, host: Host, part: str = "") -> Callable[[Any, Any], Any]:
        """Return the function of a transformer; the node and its view have one each, as in Kafka Streams."""

        def refuse(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            raise StateError(f"{host.node}: a ValueTransformer cannot forward records. Return the value instead.")

        found = host.resident(lambda *client: Begun(self._made(client, host), Context()), self.setup, part)
        found.bind(host, refuse)
        transform: Callable[[Any, Any], Any] = found.made.transform
        return transform

    def _made(self, client: tuple[Any, ...], host: Host) -> ValueTransformer[Any, Any, Any]:
        transformer = self.supplier(*client)
        if not isinstance(transformer, ValueTransformer):
            made = type(transformer).__name__
            raise TopologyError(f"{host.node}: the supplier must return a ValueTransformer, not a {made}.")
        return transformer


@dataclass(frozen=True, slots=True)
class TableRepartitionMap(Operator):
    """Routes each row to its group: subtracts the old row from its old group, then adds the new row to its new group.

    If both are in the same group they travel as one change, so that the group is never seen without either.
    """

    selector: Callable[[Any, Any], tuple[Any, Any]]
    versioned: bool

    def bind(self, host: Host, forward: Process) -> Process:
        selector, versioned, failed = self.selector, self.versioned, host.failed

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                if key is None:
                    raise ValueError("The key is None: a table's row needs a key to be grouped.")
                new, old, is_latest = change
                if versioned and not is_latest:
                    return  # groups are made of newest rows only
                added = None if new is None else _complete(selector(key, new))
                removed = None if old is None else _complete(selector(key, old))
                if added is not None and removed is not None and _same(added[0], removed[0]):
                    forward(removed[0], Change(added[1], removed[1], is_latest), timestamp, headers)
                    return
                if removed is not None:
                    forward(removed[0], Change(None, removed[1], is_latest), timestamp, headers)
                if added is not None:
                    forward(added[0], Change(added[1], None, is_latest), timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process


def dated(value: Any, timestamp: int) -> ValueAndTimestamp[Any] | None:
    """Return a view's entry; None if the value is None."""
    return None if value is None else ValueAndTimestamp(value, timestamp)


def _complete(pair: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
    """Return a selected pair; None if its key or value is None, as such a row belongs to no group."""
    return None if pair is None or pair[0] is None or pair[1] is None else pair


def _same(one: Any, other: Any) -> bool:
    """Return whether two keys are the same group; 1, 1.0 and True are equal but different groups, as their bytes differ."""
    return type(one) is type(other) and bool(one == other)
