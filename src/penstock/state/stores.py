"""Opens the typed store of a specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.state.keyvalue import KeyValueStore
from penstock.state.raw import OrderedSpace
from penstock.state.sessions import SessionStore
from penstock.state.specs import StoreKind
from penstock.state.timers import TimerStore
from penstock.state.timestamped import CachedByBytesKeyValueStore, CachedKeyValueStore, TimestampedKeyValueStore
from penstock.state.ttl import ExpiringKeyValueStore, ExpiringTimestampedStore
from penstock.state.versioned import VersionedKeyValueStore
from penstock.state.windows import TimestampedWindowStore, WindowStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard, StateStore

_OPEN: dict[StoreKind, Callable[[Shard, StoreSpec], StateStore]] = {
    StoreKind.KEY_VALUE: KeyValueStore,
    StoreKind.TIMESTAMPED: TimestampedKeyValueStore,
    StoreKind.WINDOW: WindowStore,
    StoreKind.TIMESTAMPED_WINDOW: TimestampedWindowStore,
    StoreKind.SESSION: SessionStore,
    StoreKind.VERSIONED: VersionedKeyValueStore,
    StoreKind.RAW: OrderedSpace,
    StoreKind.TIMERS: TimerStore,
}


def open_store(shard: Shard, spec: StoreSpec) -> StateStore:
    """Open the store of that specification in a shard."""
    if spec.ttl_ms is not None:
        # A store with a TTL holds no objects back: every put must advance its time.
        if spec.kind is StoreKind.KEY_VALUE:
            return ExpiringKeyValueStore(shard, spec)
        return ExpiringTimestampedStore(shard, spec)
    if spec.kind is StoreKind.TIMESTAMPED and spec.cached:
        return CachedKeyValueStore(shard, spec) if spec.serdes[0].identity else CachedByBytesKeyValueStore(shard, spec)
    return _OPEN[spec.kind](shard, spec)
