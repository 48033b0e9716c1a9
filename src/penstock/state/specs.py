"""The declaration of a store: a frozen, picklable value that a lane turns into a typed store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.errors import StateError

if TYPE_CHECKING:
    from penstock.serdes import Serde


class StoreKind(Enum):
    """The type of a store."""

    KEY_VALUE = "key_value"
    TIMESTAMPED = "timestamped"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped_window"
    SESSION = "session"
    VERSIONED = "versioned"
    RAW = "raw"
    TIMERS = "timers"


class RawLayout(Enum):
    """Where the rows of a raw store contain the key of their record."""

    UNJOINED = "time, side, key"
    WAITING = "time, key"
    HELD = "by key, or by time and key"
    SUBSCRIPTIONS = "size of the foreign key, foreign key, key"


@dataclass(frozen=True)
class Sharing:
    """What shards may do to keys of a shared store that they do not own.

    `merge(current, value)` and each of `operations`, called with (current, argument), run in the shard of the key. They are part
    of the topology: only the number of an operation is sent, never code. `argument` is the serde of arguments.
    """

    merge: Callable[[Any, Any], Any] | None = None
    operations: tuple[Callable[[Any, Any], Any], ...] = ()
    argument: Serde[Any] | None = None


@dataclass(frozen=True)
class Migration:
    """How values of a store's version before become values of this one: `convert(old)`, where `value` is the serde of old ones.

    A result of None deletes the entry, in stores without windows.
    """

    value: Serde[Any]
    convert: Callable[[Any], Any]


_WINDOWED = (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW)
_RETAINING = (*_WINDOWED, StoreKind.SESSION, StoreKind.VERSIONED)
_MIGRATING = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED, *_WINDOWED, StoreKind.SESSION)
_EXPIRING = _SHARED = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED)


@dataclass(frozen=True)
class StoreSpec:
    """One store of a topology.

    `retention_ms` is how long window and session stores keep entries and a versioned store keeps its history.
    `time_ordered` is for window and session stores that are read by time (results emitted when a window closes): they
    scan by time first, as Kafka Streams' time-ordered stores do. `ttl_ms` is for key-value and timestamped stores.
    With `sharing`, every shard may read the store; if it is a plain key-value store, every shard may write it too.
    `aggregates` describes the ready aggregates that its values consist of, if they do. `version` is that of its values, and
    `migration` says how those of the version before are converted. `renamed_from` is the store whose content it takes over.
    `topic` is what a table without a store of its own name is read from: queries know the store by it, too.
    """

    name: str
    kind: StoreKind
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    retention_ms: int | None = None
    window_size_ms: int | None = None
    segment_interval_ms: int | None = None
    retain_duplicates: bool = False
    time_ordered: bool = False
    cached: bool = False
    logged: bool = True
    ttl_ms: int | None = None
    changelog_config: tuple[tuple[str, str], ...] = ()
    layout: RawLayout | None = None
    sharing: Sharing | None = None
    aggregates: str | None = None
    version: int = 1
    migration: Migration | None = None
    renamed_from: str | None = None
    topic: str | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        if not self.name or "/" in self.name:
            raise StateError(f"Invalid store name {self.name!r}: it must not be empty or contain '/'.")
        if self.renamed_from == self.name:
            raise StateError(f"Store {self.name!r}: renamed_from= is its own name. Give the name that it had before.")
        if self.kind is StoreKind.TIMERS and self.key is None:
            raise StateError(f"Store {self.name!r} needs a serde for the keys of its timers.")
        if self.kind not in (StoreKind.RAW, StoreKind.TIMERS):
            _ = self.serdes
        if self.kind in _RETAINING and (self.retention_ms is None or self.retention_ms < 0):
            raise StateError(f"Store {self.name!r} needs a retention of 0 ms or more, got {self.retention_ms}.")
        if self.kind in _WINDOWED and (self.window_size_ms is None or self.window_size_ms < 0):
            raise StateError(f"Store {self.name!r} needs a window size of 0 ms or more, got {self.window_size_ms}.")
        if self.ttl_ms is not None and (self.kind not in _EXPIRING or self.ttl_ms <= 0):
            raise StateError(
                f"Store {self.name!r}: a TTL must be positive, and only key-value and timestamped stores can have one."
            )
        if self.sharing is not None and (self.kind not in _SHARED or self.ttl_ms is not None):
            raise StateError(f"Store {self.name!r}: only key-value and timestamped stores without a TTL can be shared.")
        if self.version < 1 or (self.migration is not None and (self.version == 1 or self.kind not in _MIGRATING)):
            kinds = "key-value, window and session stores"
            raise StateError(f"Store {self.name!r}: version= counts from 1, and migrate= is for version 2 and later of {kinds}.")

    @property
    def takes_writes(self) -> bool:
        """Whether every shard may write it; a table's store is written by its table only."""
        return self.sharing is not None and self.kind is StoreKind.KEY_VALUE

    @property
    def serdes(self) -> tuple[Serde[Any], Serde[Any]]:
        """The serdes of keys and values."""
        if self.key is None or self.value is None:
            raise StateError(f"Store {self.name!r} needs a serde for its keys and one for its values.")
        return self.key, self.value

    @property
    def segment_ms(self) -> int:
        """The duration of one segment of the store; the defaults are Kafka Streams'."""
        if self.segment_interval_ms is not None:
            return self.segment_interval_ms
        retention = self.retention_ms or 0
        if self.kind is not StoreKind.VERSIONED:
            return max(retention // 2, 60_000)
        if retention <= 60_000:
            return max(retention // 3, 2_000)
        if retention <= 300_000:
            return max(retention // 5, 20_000)
        if retention <= 3_600_000:
            return max(retention // 12, 60_000)
        return max(retention // 24, 300_000)


def by_query(specs: Mapping[str, StoreSpec]) -> dict[str, str]:
    """Return the names of stores by those that queries know: a table without a store of its own name by its topic, too.

    Example:
        >>> spec = StoreSpec("customers-STATE-STORE-0000000001", StoreKind.RAW, topic="customers")
        >>> by_query({spec.name: spec})["customers"]
        'customers-STATE-STORE-0000000001'
    """
    topics = {spec.topic: name for name, spec in specs.items() if spec.topic is not None}
    return {**topics, **{name: name for name in specs}}
