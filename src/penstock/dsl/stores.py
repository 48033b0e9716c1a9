"""The stores that users declare: `Store` for tables, and one function per kind of store for processors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.dsl.draft import Draft
from penstock.errors import TopologyError
from penstock.serdes import Json, MsgPack, Serde, serde_of
from penstock.state import Migration, Sharing, StoreKind, StoreSpec
from penstock.timing import Duration, SessionWindows, SlidingWindows, Windows, duration_ms
from penstock.topology import user_line
from penstock.topology.functions import checked


@dataclass(frozen=True, slots=True)
class Store:
    """How a table is kept.

    A table whose store has a name can be queried. `retention` is for windowed tables; `history` makes the table versioned and is
    how far back it can be read; entries expire after `ttl`. `logging` is False for no changelog, or a dict of its topic settings.
    `shared` lets processors that name the store read any key, also of another lane. If values change, increase `version`, and let
    `migrate(old)` return the new value of an old one; `old` is the type or serde of old values, by default that of new ones. If
    the name changes, `renamed_from` is the name before: the store takes over that one's content.

    Example:
        >>> Store("stats", value=dict, retention="1d").name
        'stats'
        >>> Store("orders-by-customer", renamed_from="orders").renamed_from
        'orders'
    """

    name: str | None = None
    key: Any = None
    value: Any = None
    retention: Duration | None = None
    history: Duration | None = None
    ttl: Duration | None = None
    caching: bool = True
    logging: bool | Mapping[str, str] = True
    segment_interval: Duration | None = None
    shared: bool = False
    version: int = 1
    migrate: Callable[[Any], Any] | None = None
    old: Any = None
    renamed_from: str | None = None


@dataclass(slots=True)
class Materialized:
    """A `Store` as a verb resolves it: with a name, generated if necessary, and serdes that may still be unknown."""

    store_name: str
    is_queryable: bool
    options: Store
    key: Serde[Any] | None
    value: Serde[Any] | None
    aggregates: str | None = None
    """What ready aggregates its values consist of, as text."""
    topic: str | None = None
    """What it is read from, if its name is generated: a name for queries, too."""

    @property
    def queryable_name(self) -> str | None:
        """The name to query the table by; None if it has none."""
        return self.store_name if self.is_queryable else None

    @property
    def is_versioned(self) -> bool:
        """Whether the table keeps its history."""
        return self.options.history is not None

    def _common(self, draft: Draft) -> dict[str, Any]:
        logging = self.options.logging
        value = self.value if self.value is not None else draft.default_value
        return {
            "name": self.store_name,
            "key": self.key if self.key is not None else draft.default_key,
            "value": value,
            "version": self.options.version,
            "migration": migration(self.options.migrate, self.options.old, value),
            "renamed_from": self.options.renamed_from,
            "logged": logging is not False,
            "changelog_config": changelog_config(logging),
            "aggregates": self.aggregates,
            "topic": self.topic,
        }

    def table_spec(self, draft: Draft) -> StoreSpec:
        """Return the specification of a key-value table's store."""
        options = self.options
        self._refuse("a table without windows", retention=options.retention)
        shared = options.shared or None
        if options.history is not None:
            self._refuse("a versioned table", ttl=options.ttl, shared=shared)
        else:
            self._refuse("a shared table", ttl=options.ttl and shared)
            self._refuse("a table without history=", segment_interval=options.segment_interval)
        if options.history is not None:
            segment = options.segment_interval
            return StoreSpec(
                kind=StoreKind.VERSIONED,
                retention_ms=duration_ms(options.history),
                segment_interval_ms=None if segment is None else duration_ms(segment),
                **self._common(draft),
            )
        ttl_ms = None if options.ttl is None else duration_ms(options.ttl)
        sharing = Sharing() if options.shared else None
        common = self._common(draft)
        return StoreSpec(kind=StoreKind.TIMESTAMPED, cached=options.caching, ttl_ms=ttl_ms, sharing=sharing, **common)

    def window_spec(self, draft: Draft, windows: Windows | SlidingWindows, on_close: bool) -> StoreSpec:
        """Return the specification of a windowed table's store."""
        self._refuse_all("a windowed table")
        return StoreSpec(
            kind=StoreKind.TIMESTAMPED_WINDOW,
            retention_ms=self._retention_ms(windows.retention_ms),
            window_size_ms=windows.size_ms,
            time_ordered=on_close,
            # Kafka Streams switches the cache off for windows that emit on close, except for these.
            cached=self.options.caching and not (on_close and isinstance(windows, SlidingWindows)),
            **self._common(draft),
        )

    def session_spec(self, draft: Draft, windows: SessionWindows, on_close: bool) -> StoreSpec:
        """Return the specification of a session table's store."""
        self._refuse_all("a session table")
        return StoreSpec(
            kind=StoreKind.SESSION,
            retention_ms=self._retention_ms(windows.retention_ms),
            time_ordered=on_close,
            cached=self.options.caching and not on_close,
            **self._common(draft),
        )

    def _refuse_all(self, what: str) -> None:
        options = self.options
        shared = options.shared or None
        self._refuse(what, ttl=options.ttl, history=options.history, segment_interval=options.segment_interval, shared=shared)

    def _refuse(self, what: str, **options: Any) -> None:
        for option, given in options.items():
            if given is not None:
                raise TopologyError(f"Store {self.store_name!r}: {what} takes no {option}= ({user_line()}).")

    def _retention_ms(self, least_ms: int) -> int:
        if self.options.retention is None:
            return least_ms
        retention_ms = duration_ms(self.options.retention)
        if retention_ms < least_ms:
            raise TopologyError(
                f"Store {self.store_name!r} must keep its windows for at least {least_ms} ms, "
                f"not {retention_ms} ms ({user_line()}): increase retention=."
            )
        return retention_ms


def changelog_config(logging: bool | Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return the topic settings in `logging=`, if any."""
    return tuple(sorted(logging.items())) if isinstance(logging, Mapping) else ()


def migration(migrate: Callable[[Any], Any] | None, old: Any, value: Serde[Any]) -> Migration | None:
    """Return how old values are converted, if `migrate=` says so."""
    if migrate is None:
        return None
    checked(migrate, "old", "migrate=", user_line())
    return Migration(value if old is None else serde_of(old), migrate)


def materialized(
    draft: Draft, store: str | Store | None, prefix: str, *, queryable: bool = False, topic: str | None = None
) -> Materialized:
    """Resolve the argument `store=`; generate a name if it has none. `topic` is that of a table that is read from one."""
    if store is not None and not isinstance(store, (str, Store)):
        cure = "write store='name' or store=Store('name', ...); key_value_store and the like are for processors"
        raise TopologyError(f"store= takes a name or a Store, not a {type(store).__name__} ({user_line()}): {cure}.")
    options = Store(store) if isinstance(store, str) else store or Store()
    name = options.name if options.name is not None else draft.store_name(prefix)
    key = None if options.key is None else serde_of(options.key)
    value = None if options.value is None else serde_of(options.value)
    is_named = options.name is not None
    return Materialized(name, queryable or is_named, options, key, value, topic=None if is_named else topic)


def _spec(kind: StoreKind, name: str, key: Any, value: Any, logging: bool | Mapping[str, str], **options: Any) -> StoreSpec:
    serde = serde_of(value)
    if isinstance(serde, (Json, MsgPack)):
        serde = serde.declared_by(f"value={{type}} in store {name!r} ({user_line()})")
    options |= {"key": serde_of(key), "value": serde, "logged": logging is not False}
    options["changelog_config"] = changelog_config(logging)
    return StoreSpec(name=name, kind=kind, **options)


def key_value_store(
    name: str,
    *,
    key: Any = str,
    value: Any = dict,
    ttl: Duration | None = None,
    logging: bool | Mapping[str, str] = True,
    version: int = 1,
    migrate: Callable[[Any], Any] | None = None,
    old: Any = None,
) -> StoreSpec:
    """A store of keys and values for processors; `version`, `migrate` and `old` are those of `Store`.

    Example:
        >>> key_value_store("pending", value=int).name
        'pending'
    """
    ttl_ms = None if ttl is None else duration_ms(ttl)
    converted = migration(migrate, old, serde_of(value))
    return _spec(StoreKind.KEY_VALUE, name, key, value, logging, ttl_ms=ttl_ms, version=version, migration=converted)


def shared_store(
    name: str,
    *,
    key: Any = str,
    value: Any = dict,
    merge: Callable[[Any, Any], Any] | None = None,
    operations: Iterable[Callable[[Any, Any], Any]] = (),
    argument: Any = None,
    logging: bool | Mapping[str, str] = True,
) -> StoreSpec:
    """A store of keys and values in which processors read and write any key, also of another lane.

    `store.merge(key, value)` sets a key to `merge(current, value)`. `operations` are functions of `(current, argument)` that
    `store.compute(key, operation, argument)` may call on the key's lane; they return the new value, or None to delete the key.
    `argument` is the type of their arguments (default: that of values). See `docs/global-state.md`.

    Example:
        >>> from operator import add
        >>> from penstock import Processor, StreamsBuilder
        >>> from penstock.testing import TopologyTestDriver
        >>> class CountReferrer(Processor):
        ...     def process(self, record):
        ...         self.context.store("points").merge(record.value, 1)
        >>> builder = StreamsBuilder()
        >>> _ = builder.add_state_store(shared_store("points", value=int, merge=add))
        >>> _ = builder.stream("signups", value=str).process(CountReferrer, stores=["points"])
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("signups").pipe("ann", key="bob")
        ...     driver.store("points")["ann"]
        1
    """
    line = user_line()
    if merge is not None:
        checked(merge, "current, value", "shared_store's merge=", line)
    known = tuple(checked(operation, "current, argument", "shared_store's operations=", line) for operation in operations)
    sharing = Sharing(merge, known, None if argument is None else serde_of(argument))
    return _spec(StoreKind.KEY_VALUE, name, key, value, logging, sharing=sharing)


def timestamped_key_value_store(
    name: str, *, key: Any = str, value: Any = dict, ttl: Duration | None = None, logging: bool | Mapping[str, str] = True
) -> StoreSpec:
    """A store whose values carry an event time, as tables keep them."""
    ttl_ms = None if ttl is None else duration_ms(ttl)
    return _spec(StoreKind.TIMESTAMPED, name, key, value, logging, ttl_ms=ttl_ms)


def window_store(
    name: str,
    *,
    window_size: Duration,
    retention: Duration,
    key: Any = str,
    value: Any = dict,
    retain_duplicates: bool = False,
    logging: bool | Mapping[str, str] = True,
) -> StoreSpec:
    """A store of values per key and window start."""
    return _spec(
        StoreKind.WINDOW,
        name,
        key,
        value,
        logging,
        window_size_ms=duration_ms(window_size),
        retention_ms=duration_ms(retention),
        retain_duplicates=retain_duplicates,
    )


def timestamped_window_store(
    name: str,
    *,
    window_size: Duration,
    retention: Duration,
    key: Any = str,
    value: Any = dict,
    retain_duplicates: bool = False,
    logging: bool | Mapping[str, str] = True,
) -> StoreSpec:
    """A window store whose values carry an event time, as windowed tables keep them."""
    sizes = {"window_size_ms": duration_ms(window_size), "retention_ms": duration_ms(retention)}
    return _spec(StoreKind.TIMESTAMPED_WINDOW, name, key, value, logging, retain_duplicates=retain_duplicates, **sizes)


def session_store(
    name: str, *, retention: Duration, key: Any = str, value: Any = dict, logging: bool | Mapping[str, str] = True
) -> StoreSpec:
    """A store of aggregates per key and session."""
    return _spec(StoreKind.SESSION, name, key, value, logging, retention_ms=duration_ms(retention))


def versioned_store(
    name: str,
    *,
    history: Duration,
    key: Any = str,
    value: Any = dict,
    segment_interval: Duration | None = None,
    logging: bool | Mapping[str, str] = True,
) -> StoreSpec:
    """A store that can be read as of an earlier time, as far back as `history`."""
    segment_ms = None if segment_interval is None else duration_ms(segment_interval)
    return _spec(
        StoreKind.VERSIONED, name, key, value, logging, retention_ms=duration_ms(history), segment_interval_ms=segment_ms
    )
