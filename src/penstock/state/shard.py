"""A shard's state: its stores and registers over the engine of its lane, for writing or as of a committed epoch.

A shard is the unit of state: what a record writes or remembers belongs to its shard, and no other shard sees it.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import StateError
from penstock.state.keyvalue import KeyValueStore
from penstock.state.overlay import FrozenSpace, Log, Registers, Space
from penstock.state.raw import OrderedSpace
from penstock.state.sessions import SessionStore
from penstock.state.specs import StoreKind
from penstock.state.store import plain_log
from penstock.state.timers import TimerStore
from penstock.state.timestamped import CachedByBytesKeyValueStore, CachedKeyValueStore, TimestampedKeyValueStore
from penstock.state.ttl import ExpiringKeyValueStore, ExpiringTimestampedStore
from penstock.state.versioned import VersionedKeyValueStore
from penstock.state.windows import TimestampedWindowStore, WindowStore

if TYPE_CHECKING:
    from penstock.state.engines.engine import Engine
    from penstock.state.specs import StoreSpec
    from penstock.state.store import StateStore
if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard, StateStore

REGISTERS = "/registers"
"""The space, and the changelog, of the shards' registers; a store's name has no slash."""

EPOCH = "/epoch"
"""Among the registers of a shard: the epoch that has written them last."""

PREFIX = struct.Struct(">H")
"""What the engine's keys begin with: the number of their shard."""

_REGISTERS_KEY = b"registers"

_opening = threading.RLock()

_encode_registers = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_registers = msgspec.msgpack.Decoder(dict[str, int]).decode


class ShardState:
    """The stores and registers of one shard: what Kafka Streams would keep for one task."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.number = number
        self._engine = engine
        self._prefix = PREFIX.pack(number)
        self._spaces: dict[str, Space] = {}
        self.stores: dict[str, StateStore] = {}
        self._specs: dict[str, StoreSpec] = {}
        self._kept_registers = self.space(REGISTERS, plain_log)
        self.registers: Registers = Registers(self._saved_registers())

    def store(self, spec: StoreSpec) -> Any:
        """The typed store of that specification; the same name is the same store."""
        known = self._specs.get(spec.name)
        if known is None:
            with _opening:  # threads of several shards read the global stores, and other shards as of the epoch before
                if spec.name not in self._specs:
                    self.stores[spec.name] = open_store(self, spec)
                    self._specs[spec.name] = spec
        elif known != spec:
            raise StateError(f"store {spec.name!r} is already open as {known}, not as {spec}")
        return self.stores[spec.name]

    def reopen(self, engine: Engine) -> None:
        """Go on with an engine that has what this shard has committed: stores stay, and forget what was not committed."""
        self.read_from(engine)
        self.discard()

    def read_from(self, engine: Engine) -> None:
        """Read what was committed from another engine, which has the same; what was written since stays."""
        self._engine = engine
        for space in self._spaces.values():
            space.reopen(engine)

    def space(self, name: str, log: Log | None = None, log_all: bool = False) -> Space:
        """A byte map of this shard for a store to keep its entries in; see `Space` for what goes into the changelog."""
        if name not in self._spaces:
            self._spaces[name] = self._open_space(self._prefix, name, log, log_all)
        return self._spaces[name]

    def spaces(self) -> Iterable[Space]:
        """All spaces that are open."""
        return self._spaces.values()

    def write_out(self, epoch: int | None) -> None:
        """Have everything that was written in the spaces: what stores hold as objects, and the registers."""
        for store in self.stores.values():
            store.before_commit()
        if self.registers.have_moved:
            written = {} if epoch is None else {EPOCH: epoch}
            self._kept_registers.put(_REGISTERS_KEY, _encode_registers({**self.registers.snapshot(), **written}))

    def restore_registers(self, values: dict[str, int]) -> None:
        """Let the registers be what the changelog says."""
        self._kept_registers.put(_REGISTERS_KEY, _encode_registers(values))
        self.registers.reset(values)

    def discard(self) -> None:
        """Forget what has been written since the last commit."""
        for store in self.stores.values():
            store.discard()
        for space in self._spaces.values():
            space.clear()
        self.registers.reset(self._saved_registers())

    @property
    def is_written(self) -> bool:
        """Whether anything was written since the last commit."""
        held = any(isinstance(store, CachedKeyValueStore) and store.held for store in self.stores.values())
        return held or any(space.dirty for space in self._spaces.values())

    def _open_space(self, prefix: bytes, name: str, log: Log | None, log_all: bool) -> Space:
        return Space(self._engine, prefix, name, log, log_all)

    def _saved_registers(self) -> dict[str, int]:
        data = self._kept_registers.get(_REGISTERS_KEY)
        return {} if data is None else _read_registers(data)


class FrozenShard(ShardState):
    """A shard as of a committed epoch, for reading only."""

    def __init__(self, engine: Engine, number: int, old: dict[str, dict[bytes, bytes | None]]) -> None:
        self._old = old
        super().__init__(engine, number)

    def store(self, spec: StoreSpec) -> Any:
        """The typed store, as it was."""
        return super().store(replace(spec, cached=False))

    def discard(self) -> None:
        """Only read the registers again: what is only read has no open epoch."""
        self.registers.reset(self._saved_registers())

    def _open_space(self, prefix: bytes, name: str, log: Log | None, log_all: bool) -> Space:
        space = FrozenSpace(self._engine, prefix, name, log, log_all)
        space.dirty.update(self._old.get(name, {}))
        return space


def last_registers(keys: Sequence[bytes], values: Sequence[bytes | None]) -> dict[str, int] | None:
    """A shard's registers as of the last of some changelog rows; None if none of them says."""
    found = [value for key, value in zip(keys, values, strict=True) if key == _REGISTERS_KEY and value is not None]
    return _read_registers(found[-1]) if found else None


def registers_row(values: dict[str, int]) -> tuple[bytes, bytes]:
    """The changelog row of a shard's registers."""
    return _REGISTERS_KEY, _encode_registers(values)


def _read_registers(data: bytes) -> dict[str, int]:
    try:
        return _decode_registers(data)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise StateError(f"the registers of a shard are written in another format, or damaged ({error}): rebuild it") from None


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
