"""A lane's state: its stores over one engine, written once per epoch, and the last epoch taken back if need be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import StateError
from penstock.state.engines.engine import SpaceBatch
from penstock.state.epochs import HEAD, META, Head, decode_head, decode_undo, encode_head, encode_undo, undo_key
from penstock.state.overlay import FrozenSpace, Log, Registers, Space
from penstock.state.stores import open_store
from penstock.state.timestamped import CachedKeyValueStore

if TYPE_CHECKING:
    from penstock.state.engines.engine import Engine
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Store


class StoreChanges(NamedTuple):
    """Changelog rows of one store, by column: a key's new value, or None where it was deleted."""

    store: str
    keys: list[bytes]
    values: list[bytes | None]


class LaneState:
    """The stores and registers of one lane. One owner at a time; an epoch ends with `commit` or `discard`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._head = decode_head(engine.get(META, HEAD))
        self._spaces: dict[str, Space] = {}
        self._stores: dict[str, Store] = {}
        self._specs: dict[str, StoreSpec] = {}
        self.registers = Registers(dict(self._head.registers))

    @property
    def epoch(self) -> int:
        """The last epoch that was applied, -1 for none."""
        return self._head.epoch

    def store(self, spec: StoreSpec) -> Any:
        """The typed store of that specification; the same name is the same store."""
        known = self._specs.get(spec.name)
        if known is None:
            self._stores[spec.name] = open_store(self, spec)
            self._specs[spec.name] = spec
        elif known != spec:
            raise StateError(f"store {spec.name!r} is already open as {known}, not as {spec}")
        return self._stores[spec.name]

    def space(self, name: str, log: Log | None = None, log_all: bool = False) -> Space:
        """A byte map of this lane for a store to keep its entries in; see `Space` for what goes into the changelog."""
        if name not in self._spaces:
            self._spaces[name] = self._open_space(name, log, log_all)
        return self._spaces[name]

    def commit(self, epoch: int) -> Sequence[StoreChanges]:
        """Write the epoch in one atomic batch and hand back its changelog rows."""
        if epoch <= self.epoch:
            raise StateError(f"epoch {epoch} cannot follow epoch {self.epoch}")
        for store in self._stores.values():
            store.before_commit()
        rows, batch, undo = self._collect()
        registers = self.registers.snapshot()
        head = Head(epoch, registers, self._head.epoch, dict(self.registers.saved), [space for space, _ in undo])
        self._write(head, batch, [(undo_key(space), blob) for space, blob in undo])
        return rows

    def discard(self) -> None:
        """Forget what has been written since the last commit."""
        for store in self._stores.values():
            store.discard()
        for space in self._spaces.values():
            space.clear()
        self.registers.reset(dict(self._head.registers))

    def roll_back(self) -> None:
        """Take the last epoch back: content, registers and epoch number are those before it."""
        self._refuse_pending("rolled back")
        head = self._head
        if head.undo is None:
            raise StateError(f"epoch {head.epoch} cannot be taken back: nothing is kept about the one before")
        batch = [SpaceBatch(space, *self._undo(space)) for space in head.undo]
        self._write(Head(head.previous_epoch, dict(head.previous_registers)), batch, [])

    def read_committed(self, epoch: int) -> LaneView:
        """The lane as of `epoch`, which is the last applied or the one before it; for reading only.

        Valid until the engine is next written, refreshed or closed.
        """
        head = decode_head(self._engine.get(META, HEAD))
        if epoch == head.epoch:
            return LaneView(self._engine, head.epoch, dict(head.registers), {})
        if head.undo is not None and epoch == head.previous_epoch:
            return LaneView(self._engine, epoch, dict(head.previous_registers), {space: self._undo(space) for space in head.undo})
        raise StateError(f"the lane is at epoch {head.epoch} and cannot be read as of epoch {epoch}")

    def restore(self, changes: Iterable[StoreChanges], epoch: int | None = None) -> None:
        """Apply changelog rows, once or again, with the registers as they are now, and count as `epoch` from now on.

        The stores must be open. One atomic batch; afterwards nothing is left that could be rolled back.
        """
        for name, keys, values in changes:
            if name not in self._stores:
                raise StateError(f"rows of store {name!r}, which is not open in this lane")
            self._stores[name].restore(keys, values)
        _, batch, _ = self._collect()
        self._write(Head(self.epoch if epoch is None else epoch, self.registers.snapshot()), batch, [])

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    def _open_space(self, name: str, log: Log | None, log_all: bool) -> Space:
        return Space(self._engine, name, log, log_all)

    def _refuse_pending(self, what: str) -> None:
        held = any(isinstance(store, CachedKeyValueStore) and store.held for store in self._stores.values())
        if held or any(space.dirty for space in self._spaces.values()):
            raise StateError(f"a lane with writes of an open epoch cannot be {what}: commit or discard them first")

    def _undo(self, space: str) -> tuple[list[bytes], list[bytes | None]]:
        data = self._engine.get(META, undo_key(space))
        if data is None:
            raise StateError(f"the old values of {space!r} are missing")
        return decode_undo(data)

    def _collect(self) -> tuple[list[StoreChanges], list[SpaceBatch], list[tuple[str, bytes]]]:
        rows: list[StoreChanges] = []
        batch: list[SpaceBatch] = []
        undo: list[tuple[str, bytes]] = []
        for space in self._spaces.values():
            if not space.dirty:
                continue
            keys, values, old = space.changes()
            logged = space.logged(keys, values)
            if logged is not None:
                rows.append(StoreChanges(space.name, *logged))
            if keys:
                batch.append(SpaceBatch(space.name, keys, values))
                undo.append((space.name, encode_undo(keys, old)))
        return rows, batch, undo

    def _write(self, head: Head, batch: list[SpaceBatch], undo: list[tuple[bytes, bytes]]) -> None:
        """One batch: the spaces, the head, the undo of this epoch in place of the last one's."""
        meta: dict[bytes, bytes | None] = {undo_key(space): None for space in self._head.undo or ()}
        meta.update(undo)
        meta[HEAD] = encode_head(head)
        keys = sorted(meta)
        self._engine.write([*batch, SpaceBatch(META, keys, [meta[key] for key in keys])])
        self._head = head
        self.discard()


class LaneView(LaneState):
    """A lane as of a committed epoch, for reading only; its engine stays with the lane it is a view of."""

    def __init__(
        self,
        engine: Engine,
        epoch: int,
        registers: dict[str, int],
        old: dict[str, tuple[list[bytes], list[bytes | None]]],
    ) -> None:
        super().__init__(engine)
        self._head = Head(epoch, registers)
        self._old = old
        self.registers = Registers(registers)

    def store(self, spec: StoreSpec) -> Any:
        """The typed store, as it was."""
        return super().store(replace(spec, cached=False))

    def discard(self) -> None:
        """Nothing: a view has no open epoch."""

    def commit(self, epoch: int) -> Sequence[StoreChanges]:
        """Refuse."""
        raise StateError("a lane that is read as of a committed epoch cannot be committed")

    def roll_back(self) -> None:
        """Refuse."""
        raise StateError("a lane that is read as of a committed epoch cannot be rolled back")

    def restore(self, changes: Iterable[StoreChanges], epoch: int | None = None) -> None:
        """Refuse."""
        raise StateError("a lane that is read as of a committed epoch cannot be restored")

    def close(self) -> None:
        """Nothing: the engine is its owner's to close."""

    def _open_space(self, name: str, log: Log | None, log_all: bool) -> Space:
        space = FrozenSpace(self._engine, name, log, log_all)
        if name in self._old:
            space.dirty.update(zip(*self._old[name], strict=True))
        return space
