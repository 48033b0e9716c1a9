"""The stores that a lane's nodes are bound to, and the changes that their caches hold until the epoch ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.lanes.blueprint import Blueprint
from penstock.state import CachedKeyValueStore, Register, ShardState, StateOfStores, retention_limit


def _owns_all(key: bytes) -> bool:
    """Return True, for hosts with a single shard."""
    return True


@dataclass(frozen=True, slots=True)
class OwnShard:
    """The shard that a lane is bound to, and what it can read of others.

    `global_state` has the global stores; without it, the shard's state has them. `owns` says whether a key belongs to this
    shard. `owner_before` returns the state, as of the end of the epoch before, of the shard that owns a key; it is called only
    for keys of other shards.
    """

    state: StateOfStores
    global_state: StateOfStores | None = None
    owns: Callable[[bytes], bool] = _owns_all
    owner_before: Callable[[bytes], ShardState] | None = None


class Stores:
    """The stores and registers of one shard by name, and the global ones."""

    __slots__ = ("_blueprint", "_flushes", "_pending", "_ready", "_shard")

    def __init__(self, blueprint: Blueprint, shard: OwnShard) -> None:
        self._blueprint = blueprint
        self._shard = shard
        self._pending: dict[str, dict[Any, Any]] = {}
        self._flushes: dict[str, Callable[[], None]] = {}
        self._ready: dict[str, Callable[[], None]] = {}
        for name in blueprint.stores:
            shard.state.store(blueprint.specs[name])
            self._flushes[name] = _nothing_to_flush

    def store(self, name: str) -> Any:
        """Return a typed store of this shard, or a global one."""
        shard = self._shard
        state = (shard.global_state or shard.state) if self.is_global(name) else shard.state
        return state.store(self._blueprint.spec(name))

    def is_global(self, name: str) -> bool:
        """Whether every node may use the store without being connected to it."""
        return name in self._blueprint.global_stores

    def register(self, name: str, initial: int) -> Register:
        """Return a named integer of the shard's state."""
        return self._shard.state.registers.register(name, initial)

    def retention_limit(self, name: str) -> Register:
        """Return the time before which a store may drop windows."""
        return retention_limit(self._shard.state.registers, name)

    def owns(self, key: bytes) -> bool:
        """Whether a key belongs to this shard."""
        return self._shard.owns(key)

    def owner_before(self, key: bytes) -> ShardState:
        """Return the other shard that owns a key, as of the end of the epoch before."""
        assert self._shard.owner_before is not None
        return self._shard.owner_before(key)

    def pending(self, store: str) -> dict[Any, Any]:
        """Return the pending changes of a cached store; nodes that share a store (cogroup) share these."""
        return self._pending.setdefault(store, {})

    def on_flush(self, store: str, flush: Callable[[], None]) -> None:
        """Call `flush` when the epoch ends.

        Of nodes that share a store, the last one in the topology emits, as in Kafka Streams. Nodes are bound from last to first,
        so that is the first to call this.
        """
        if self._flushes[store] is _nothing_to_flush:
            self._flushes[store] = flush

    def emit_once(self, store: str, emit: Callable[[], None]) -> None:
        """Call `emit` when the epoch ends, at the store's turn: its changes of this epoch are written and ready to be sent."""
        self._ready[store] = emit

    def flush(self) -> None:
        """Let every cached table emit its pending changes."""
        for name, emit in self._flushes.items():
            if name in self._ready:
                self._ready.pop(name)()
            emit()

    @property
    def are_holding_back(self) -> bool:
        """Whether tables have changes to emit."""
        return bool(self._ready) or any(self._pending.values()) or any(cache.held for cache in self._caches())

    def _caches(self) -> list[CachedKeyValueStore[Any, Any]]:
        stores = [self.store(name) for name, flush in self._flushes.items() if flush is not _nothing_to_flush]
        return [store for store in stores if isinstance(store, CachedKeyValueStore)]


def _nothing_to_flush() -> None:
    """Do nothing: an uncached store has nothing to flush."""
