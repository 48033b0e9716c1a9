"""A lane's state: its stores over one engine, written once per epoch, and the last epoch taken back if need be."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.errors import StateError
from penstock.state.engines.engine import SpaceBatch
from penstock.state.epochs import (
    HEAD,
    META,
    Head,
    Mark,
    Step,
    changed_digest,
    decode_head,
    decode_undo,
    digest,
    encode_head,
    encode_undo,
    undo_key,
)
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


class Change(NamedTuple):
    """What an epoch changed in one space: keys, their new values, their old ones."""

    space: str
    keys: list[bytes]
    values: list[bytes | None]
    old: list[bytes | None]


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

    @property
    def mark(self) -> Mark | None:
        """From where in the changelogs the lane can catch up."""
        return self._head.mark

    @property
    def incarnation(self) -> str:
        """Which start of the application has written the lane last."""
        return self._head.incarnation

    def commit(self, epoch: int, stage: int = 0, incarnation: str = "", mark: Mark | None = None) -> Sequence[StoreChanges]:
        """Write the epoch, or one stage of it, in one atomic batch and hand back its changelog rows.

        A later stage of the same epoch adds to it: both are taken back together.
        """
        head = self._head
        steps = head.steps if epoch == head.epoch and head.steps else []
        if epoch < head.epoch or (epoch == head.epoch and (not steps or stage <= steps[-1].stage)):
            raise StateError(f"epoch {epoch}, stage {stage} cannot follow epoch {head.epoch}")
        for store in self._stores.values():
            store.before_commit()
        rows, batch, undo = self._collect()
        step = Step(stage, dict(self.registers.saved), head.digests, [space for space, _ in undo])
        previous = head.previous_epoch if steps else head.epoch
        after = Head(
            epoch, self.registers.snapshot(), self._digests(batch), previous, [*steps, step], mark or head.mark, incarnation
        )
        replaced = [] if steps else [undo_key(old.stage, space) for old in head.steps or () for space in old.spaces]
        self._write(after, batch, [(undo_key(stage, space), encode_undo(*old)) for space, old in undo], replaced)
        return rows

    def discard(self) -> None:
        """Forget what has been written since the last commit."""
        for store in self._stores.values():
            store.discard()
        for space in self._spaces.values():
            space.clear()
        self.registers.reset(dict(self._head.registers))

    def roll_back(self, stage: int = 0) -> None:
        """Take the last epoch back, or what this stage and later ones have written of it."""
        self._refuse_pending("rolled back")
        if not self._head.steps:
            raise StateError(f"epoch {self.epoch} cannot be taken back: nothing is kept about the one before")
        while self._head.steps and self._head.steps[-1].stage >= stage:
            self._take_back_step()

    def _take_back_step(self) -> None:
        head = self._head
        assert head.steps
        *steps, step = head.steps
        batch = [SpaceBatch(space, *self._undo(step.stage, space)) for space in step.spaces]
        epoch = head.epoch if steps else head.previous_epoch
        before = Head(epoch, step.registers, step.digests, head.previous_epoch, steps or None, head.mark, head.incarnation)
        self._write(before, batch, [], [undo_key(step.stage, space) for space in step.spaces])

    @property
    def last_stage(self) -> int:
        """The last stage that has written to the last epoch, -1 if that is not known any more."""
        return self._head.steps[-1].stage if self._head.steps else -1

    @property
    def is_written(self) -> bool:
        """Whether anything was written since the last commit."""
        moved = self.registers.snapshot() != self.registers.saved
        return moved or self._has_pending()

    @property
    def can_roll_back(self) -> bool:
        """Whether the last epoch can be taken back."""
        return bool(self._head.steps)

    def read_committed(self, epoch: int) -> LaneView:
        """The lane as of `epoch`, which is the last applied or the one before it; for reading only.

        Valid until the engine is next written, refreshed or closed.
        """
        head = decode_head(self._engine.get(META, HEAD))
        if epoch == head.epoch:
            return LaneView(self._engine, head.epoch, dict(head.registers), {})
        if head.steps and epoch == head.previous_epoch:
            old: dict[str, dict[bytes, bytes | None]] = {}
            for step in reversed(head.steps):
                for space in step.spaces:
                    old.setdefault(space, {}).update(zip(*self._undo(step.stage, space), strict=True))
            return LaneView(self._engine, epoch, dict(head.steps[0].registers), old)
        raise StateError(f"the lane is at epoch {head.epoch} and cannot be read as of epoch {epoch}")

    def verify(self) -> None:
        """Read everything and compare it with the digests: LMDB itself would not notice a damaged page."""
        for space in self._head.digests:
            for _ in self._verified(space):
                pass

    def copy(self, engine: Engine) -> None:
        """Write everything into an empty engine, compared with the digests; how the last epoch is taken back is left out."""
        for space in self._head.digests:
            for keys, values in self._verified(space):
                engine.write([SpaceBatch(space, list(keys), list(values))])
        head = msgspec.structs.replace(self._head, steps=None)
        engine.write([SpaceBatch(META, [HEAD], [encode_head(head)])])

    def _verified(self, space: str) -> Iterator[tuple[tuple[bytes, ...], tuple[bytes, ...]]]:
        """All entries of a space; in the end it is known whether they were the right ones."""
        found = 0
        for batch in _chunks(self._engine.scan(space, None, None)):
            keys, values = zip(*batch, strict=True)
            found += digest(keys, values)
            yield keys, values
        if found & (2**64 - 1) != self._head.digests[space]:
            raise StateError(f"the content of {space!r} is damaged: rebuild the lane")

    def restore(
        self, changes: Iterable[StoreChanges], epoch: int | None = None, incarnation: str = "", mark: Mark | None = None
    ) -> None:
        """Apply changelog rows, once or again, with the registers as they are now, and count as `epoch` from now on.

        The stores must be open. One atomic batch; afterwards nothing is left that could be rolled back.
        """
        for name, keys, values in changes:
            if name not in self._stores:
                raise StateError(f"rows of store {name!r}, which is not open in this lane")
            try:
                self._stores[name].restore(keys, values)
            except (ValueError, IndexError, struct.error) as error:
                raise StateError(
                    f"the changelog of store {name!r} has rows that it did not write ({error}): find out who did, and reset "
                    f"the application"
                ) from error
        _, batch, _ = self._collect()
        head = self._head
        after = Head(
            head.epoch if epoch is None else epoch,
            self.registers.snapshot(),
            self._digests(batch),
            mark=mark or head.mark,
            incarnation=incarnation or head.incarnation,
        )
        replaced = [undo_key(step.stage, space) for step in head.steps or () for space in step.spaces]
        self._write(after, batch, [], replaced)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Entries and bytes of every store that is open, as exactly as the engine knows."""
        return {name: (self._engine.count(name), self._engine.size(name)) for name in self._stores}

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    def _open_space(self, name: str, log: Log | None, log_all: bool) -> Space:
        return Space(self._engine, name, log, log_all)

    def _has_pending(self) -> bool:
        held = any(isinstance(store, CachedKeyValueStore) and store.held for store in self._stores.values())
        return held or any(space.dirty for space in self._spaces.values())

    def _refuse_pending(self, what: str) -> None:
        if self._has_pending():
            raise StateError(f"a lane with writes of an open epoch cannot be {what}: commit or discard them first")

    def _undo(self, stage: int, space: str) -> tuple[list[bytes], list[bytes | None]]:
        data = self._engine.get(META, undo_key(stage, space))
        if data is None:
            raise StateError(f"the old values of {space!r} are missing")
        return decode_undo(data)

    def _collect(self) -> tuple[list[StoreChanges], list[Change], list[tuple[str, tuple[list[bytes], list[bytes | None]]]]]:
        rows: list[StoreChanges] = []
        batch: list[Change] = []
        undo: list[tuple[str, tuple[list[bytes], list[bytes | None]]]] = []
        for space in self._spaces.values():
            if not space.dirty:
                continue
            keys, values, old = space.changes()
            logged = space.logged(keys, values)
            if logged is not None:
                rows.append(StoreChanges(space.name, *logged))
            if keys:
                batch.append(Change(space.name, keys, values, old))
                undo.append((space.name, (keys, old)))
        return rows, batch, undo

    def _digests(self, batch: list[Change]) -> dict[str, int]:
        """The digests of all spaces once the batch is written."""
        digests = dict(self._head.digests)
        for space, keys, values, old in batch:
            digests[space] = changed_digest(digests.get(space, 0), keys, values, old)
        return digests

    def _write(
        self, head: Head, batch: Sequence[Change | SpaceBatch], undo: list[tuple[bytes, bytes]], replaced: list[bytes]
    ) -> None:
        """One batch: the spaces, the head, the undo of this epoch in place of the last one's."""
        meta: dict[bytes, bytes | None] = dict.fromkeys(replaced)
        meta.update(undo)
        meta[HEAD] = encode_head(head)
        keys = sorted(meta)
        spaces = [SpaceBatch(change[0], change[1], change[2]) for change in batch]
        self._engine.write([*spaces, SpaceBatch(META, keys, [meta[key] for key in keys])])
        self._head = head
        self.discard()


class LaneView(LaneState):
    """A lane as of a committed epoch, for reading only; its engine stays with the lane it is a view of."""

    def __init__(
        self,
        engine: Engine,
        epoch: int,
        registers: dict[str, int],
        old: dict[str, dict[bytes, bytes | None]],
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

    def commit(self, epoch: int, stage: int = 0, incarnation: str = "", mark: Mark | None = None) -> Sequence[StoreChanges]:
        """Refuse."""
        raise StateError("a lane that is read as of a committed epoch cannot be committed")

    def roll_back(self, stage: int = 0) -> None:
        """Refuse."""
        raise StateError("a lane that is read as of a committed epoch cannot be rolled back")

    def restore(
        self, changes: Iterable[StoreChanges], epoch: int | None = None, incarnation: str = "", mark: Mark | None = None
    ) -> None:
        """Refuse."""
        raise StateError("a lane that is read as of a committed epoch cannot be restored")

    def close(self) -> None:
        """Nothing: the engine is its owner's to close."""

    def _open_space(self, name: str, log: Log | None, log_all: bool) -> Space:
        space = FrozenSpace(self._engine, name, log, log_all)
        if name in self._old:
            space.dirty.update(self._old[name])
        return space


def _chunks(entries: Iterator[tuple[bytes, bytes]], size: int = 10_000) -> Iterator[list[tuple[bytes, bytes]]]:
    while chunk := list(islice(entries, size)):
        yield chunk
