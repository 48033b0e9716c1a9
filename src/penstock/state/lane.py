"""A lane's state: the shards that it runs over one engine, written once per epoch, and epochs taken back if need be.

A shard is the unit of state. What a record writes or remembers belongs to its shard, and no other shard sees it; a lane is
just the file that several shards share. The number of lanes therefore cannot change a result.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.advance import advanced
from penstock.errors import StateError
from penstock.state.engines.engine import Expected, SpaceBatch
from penstock.state.engines.guarded import GuardedEngine
from penstock.state.epochs import (
    HEAD,
    META,
    Applied,
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
from penstock.state.shard import PREFIX, FrozenShard, ShardState

if TYPE_CHECKING:
    from penstock.state.engines.engine import Engine
    from penstock.state.overlay import Log, Registers, Space
    from penstock.state.specs import StoreSpec


class StoreChanges(NamedTuple):
    """Changelog rows of one store in one shard, by column: a key's new value, or None where it was deleted."""

    store: str
    keys: list[bytes]
    values: list[bytes | None]
    shard: int = 0


class SpaceChanges(NamedTuple):
    """What an epoch changed in one space of all shards: the engine's keys, their new values, their old ones."""

    space: str
    keys: list[bytes]
    values: list[bytes | None]
    old: list[bytes | None]


Undo = list[tuple[str, tuple[list[bytes], "list[bytes | None]"]]]
"""By space: the keys that were touched, and their old values."""


class LaneState:
    """The shards of one lane. One owner at a time; an epoch ends with `commit` or `discard`.

    A host that has but one shard, such as the test driver, uses `store`, `space` and `registers`: those of shard 0.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stored = engine.get(META, HEAD)
        self._head = decode_head(self._stored)
        self._shards: dict[int, ShardState] = {}

    def shard(self, number: int) -> ShardState:
        """A shard's stores and registers; the same number is the same shard."""
        found = self._shards.get(number)
        if found is None:
            found = self._shards[number] = self._open_shard(number)
        return found

    def store(self, spec: StoreSpec) -> Any:
        """The typed store of that specification, of shard 0."""
        return self.shard(0).store(spec)

    def space(self, name: str, log: Log | None = None, log_all: bool = False) -> Space:
        """A byte map of shard 0."""
        return self.shard(0).space(name, log, log_all)

    @property
    def registers(self) -> Registers:
        """The registers of shard 0."""
        return self.shard(0).registers

    @property
    def epoch(self) -> int:
        """The last epoch that was applied, -1 for none."""
        return self._head.epoch

    @property
    def head(self) -> Head:
        """The lane as of its last write: which start has written it, with which id, and from where it can catch up."""
        return self._head

    def commit(
        self,
        epoch: int,
        stage: int = 0,
        incarnation: str = "",
        mark: Mark | None = None,
        committed: int | None = None,
        attempt: int = 0,
    ) -> Sequence[StoreChanges]:
        """Write the epoch, or one stage of it, in one atomic batch and hand back its changelog rows.

        A later stage of the same epoch adds to it. Epochs after `committed` can still be taken back, which is only this one
        unless it is given.
        """
        head = self._head
        *earlier, last = head.followed_by(epoch, stage)
        committed = last.previous if committed is None else committed
        for shard in self._shards.values():
            shard.write_out(epoch)
        rows, batch, undo = self._collect()
        step = Step(stage, head.digests, [space for space, _ in undo], head.write_id)
        kept = [one for one in earlier if one.epoch > committed]
        applied = [*kept, Applied(epoch, last.previous, [*last.steps, step])]
        after = Head(epoch, self._digests(batch), applied, mark or head.mark, incarnation, attempt, _new_id())
        dropped = [key for one in earlier if one.epoch <= committed for key in one.undo_keys()]
        self._write(after, batch, [(undo_key(epoch, stage, space), encode_undo(*old)) for space, old in undo], dropped)
        return rows

    def stamp(self, attempt: int) -> None:
        """Let only tasks of that attempt and later ones use the lane."""
        self._write(msgspec.structs.replace(self._head, attempt=attempt), [], [], [])

    def discard(self) -> None:
        """Forget what has been written since the last commit."""
        for shard in self._shards.values():
            shard.discard()

    def roll_back(self, epoch: int | None = None, stage: int = 0) -> None:
        """Take back what an epoch has written from this stage on, and all later epochs; without `epoch`, the last one."""
        if self._has_pending():
            raise StateError("a lane with writes of an open epoch cannot be rolled back: commit or discard them first")
        first = self.epoch if epoch is None else epoch
        if self.epoch >= first and self.earliest >= first:
            raise StateError(f"epoch {first} cannot be taken back: nothing is kept about the one before")
        while self._head.applied and self.reached >= (first, stage):
            self._take_back_step()

    def _take_back_step(self) -> None:
        last = self._head.applied[-1]
        step = last.steps[-1]
        keys = [undo_key(last.epoch, step.stage, space) for space in step.spaces]
        batch = [SpaceBatch(space, *self._undo(space, key)) for space, key in zip(step.spaces, keys, strict=True)]
        self._write(self._head.without_last_step(), batch, [], keys)

    @property
    def reached(self) -> tuple[int, int]:
        """The last epoch that was applied, and the last stage that has written to it, -1 if that is not known any more."""
        applied = self._head.applied
        return self.epoch, applied[-1].steps[-1].stage if applied else -1

    @property
    def is_written(self) -> bool:
        """Whether anything was written since the last commit."""
        return self._has_pending() or any(shard.registers.have_moved for shard in self._shards.values())

    @property
    def earliest(self) -> int:
        """The earliest epoch to which the lane can be rolled back, and as of which it can be read."""
        return self._head.earliest

    def read_committed(self, epoch: int) -> LaneView:
        """The lane as of `epoch`, which is the last applied or an earlier one that it can be rolled back to; for reading only.

        Valid until the engine is next written, refreshed or closed.
        """
        head = decode_head(self._engine.get(META, HEAD))
        old: dict[str, dict[bytes, bytes | None]] = {}
        for later in reversed(head.after(epoch)):  # the newest first, so that of several old values the oldest is kept
            for step in reversed(later.steps):
                for space in step.spaces:
                    found = self._undo(space, undo_key(later.epoch, step.stage, space))
                    old.setdefault(space, {}).update(zip(*found, strict=True))
        return LaneView(self._engine, epoch, old)

    def verify(self) -> None:
        """Read everything and compare it with the digests: LMDB itself would not notice a damaged page."""
        for space in self._head.digests:
            for _ in self._verified(space):
                pass

    def copy(self, engine: Engine) -> None:
        """Write everything into an empty engine, compared with the digests; how epochs are taken back is left out."""
        for space in self._head.digests:
            for keys, values in self._verified(space):
                engine.write([SpaceBatch(space, list(keys), list(values))])
        head = msgspec.structs.replace(self._head, applied=[])
        engine.write([SpaceBatch(META, [HEAD], [encode_head(head)])])

    def _verified(self, space: str) -> Iterator[tuple[tuple[bytes, ...], tuple[bytes, ...]]]:
        """All entries of a space; in the end it is known whether they were the right ones."""
        found = 0
        for batch in chunks(self._engine.scan(space, None, None)):
            keys, values = zip(*batch, strict=True)
            found += digest(keys, values)
            advanced(f"reading {space!r} of a store")
            yield keys, values
        if found & (2**64 - 1) != self._head.digests[space]:
            raise StateError(f"the content of {space!r} is damaged: rebuild the lane")

    def restore(
        self,
        changes: Iterable[StoreChanges],
        epoch: int | None = None,
        incarnation: str = "",
        mark: Mark | None = None,
        attempt: int = 0,
        write_id: str | None = None,
    ) -> None:
        """Apply changelog rows, once or again, with the registers as they are now, and count as `epoch` from now on.

        `write_id` is the id of the write whose content the lane has then, if it is known.
        The stores must be open. One atomic batch; afterwards nothing is left that could be rolled back.
        """
        for name, keys, values, number in changes:
            stores = self.shard(number).stores
            if name not in stores:
                raise StateError(f"rows of store {name!r}, which is not open in this lane")
            try:
                stores[name].restore(keys, values)
            except (ValueError, IndexError, struct.error) as error:
                raise StateError(
                    f"the changelog of store {name!r} has rows that it did not write ({error}): find out who did, and reset "
                    f"the application"
                ) from error
        for shard in self._shards.values():
            shard.write_out(epoch)
        _, batch, _ = self._collect()
        head = self._head
        after = Head(
            head.epoch if epoch is None else epoch,
            self._digests(batch),
            mark=mark or head.mark,
            incarnation=incarnation or head.incarnation,
            attempt=attempt,
            write_id=write_id or _new_id(),
        )
        self._write(after, batch, [], [key for one in head.applied for key in one.undo_keys()])

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Entries and bytes of every store that is open, of all shards, as exactly as the engine knows."""
        names = dict.fromkeys(name for shard in self._shards.values() for name in shard.stores)
        return {name: (self._engine.count(name), self._engine.size(name)) for name in names}

    def count(self, store: str) -> int:
        """About how many entries a store has in all shards, as far as the engine knows without looking at each."""
        return self._engine.count(store)

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    def _open_shard(self, number: int) -> ShardState:
        return ShardState(self._engine, number)

    def _has_pending(self) -> bool:
        return any(shard.is_written for shard in self._shards.values())

    def _undo(self, space: str, key: bytes) -> tuple[list[bytes], list[bytes | None]]:
        data = self._engine.get(META, key)
        if data is None:
            raise StateError(f"the old values of {space!r} are missing")
        return decode_undo(data)

    def _collect(self) -> tuple[list[StoreChanges], list[SpaceChanges], Undo]:
        """The epoch's changes: as changelog rows by shard, and by space with the engine's keys, ascending."""
        rows: list[StoreChanges] = []
        found: dict[str, SpaceChanges] = {}
        for number in sorted(self._shards):
            for space in self._shards[number].spaces():
                if not space.dirty:
                    continue
                keys, values, old = space.changes()
                logged = space.logged(keys, values)
                if logged is not None:
                    rows.append(StoreChanges(space.name, *logged, number))
                if keys:
                    prefix = space.prefix
                    changes = found.setdefault(space.name, SpaceChanges(space.name, [], [], []))
                    changes.keys.extend([prefix + key for key in keys])
                    changes.values.extend(values)
                    changes.old.extend(old)
        batch = list(found.values())
        return rows, batch, [(changes.space, (changes.keys, changes.old)) for changes in batch]

    def _digests(self, batch: list[SpaceChanges]) -> dict[str, int]:
        """The digests of all spaces once the batch is written."""
        digests = dict(self._head.digests)
        for space, keys, values, old in batch:
            digests[space] = changed_digest(digests.get(space, 0), keys, values, old)
        return digests

    def _write(
        self, head: Head, batch: Sequence[SpaceChanges | SpaceBatch], undo: list[tuple[bytes, bytes]], dropped: list[bytes]
    ) -> None:
        """One batch: the spaces, the head, the undo of this epoch, and that of others no more."""
        meta: dict[bytes, bytes | None] = dict.fromkeys(dropped)
        meta.update(undo)
        meta[HEAD] = encode_head(head)
        keys = sorted(meta)
        spaces = [SpaceBatch(change[0], change[1], change[2]) for change in batch]
        stored, expected = meta[HEAD], Expected(META, HEAD, self._stored)
        self._engine.write([*spaces, SpaceBatch(META, keys, [meta[key] for key in keys])], expected)
        self._head, self._stored = head, stored
        self.discard()


def pending_changes(state: LaneState, epoch: int) -> Sequence[StoreChanges]:
    """The changelog rows of what was written in an epoch, which is discarded: another process writes it."""
    for shard in state._shards.values():
        shard.write_out(epoch)
    rows, _, _ = state._collect()
    state.discard()
    return rows


def continue_with(state: LaneState, shards: Iterable[ShardState]) -> None:
    """Let a lane take over shards of an earlier opening of the same state, because user code holds their stores."""
    for shard in shards:
        if state._shards.get(shard.number) is not shard:
            shard.reopen(state._engine)
            state._shards[shard.number] = shard


def let_threads_read(state: LaneState) -> None:
    """Let several threads read a lane, each in shards of its own; what was written so far stays. One thread commits."""
    if not isinstance(state._engine, GuardedEngine):
        state._engine = GuardedEngine(state._engine)
        for shard in state._shards.values():
            shard.read_from(state._engine)


class LaneView(LaneState):
    """A lane as of an earlier epoch, for reading only; its engine stays with the lane it is a view of."""

    def __init__(self, engine: Engine, epoch: int, old: dict[str, dict[bytes, bytes | None]]) -> None:
        super().__init__(engine)
        self._head = Head(epoch)
        self._old: dict[int, dict[str, dict[bytes, bytes | None]]] = {}
        for space, entries in old.items():
            for key, value in entries.items():
                (number,) = PREFIX.unpack_from(key)
                self._old.setdefault(number, {}).setdefault(space, {})[key[PREFIX.size :]] = value

    def commit(self, *_: Any, **__: Any) -> Sequence[StoreChanges]:
        """Refuse."""
        raise StateError("a lane that is read as of an epoch cannot be committed")

    def roll_back(self, epoch: int | None = None, stage: int = 0) -> None:
        """Refuse."""
        raise StateError("a lane that is read as of an epoch cannot be rolled back")

    def restore(self, *_: Any, **__: Any) -> None:
        """Refuse."""
        raise StateError("a lane that is read as of an epoch cannot be restored")

    def count(self, store: str) -> int:
        """About how many entries a store had in all shards."""
        count = super().count(store)
        for number, spaces in self._old.items():
            for key, before in spaces.get(store, {}).items():
                is_there = self._engine.get(store, PREFIX.pack(number) + key) is not None
                count += (before is not None) - is_there
        return count

    def close(self) -> None:
        """Nothing: the engine is its owner's to close."""

    def _open_shard(self, number: int) -> ShardState:
        return FrozenShard(self._engine, number, self._old.get(number, {}))


def _new_id() -> str:
    return uuid.uuid4().hex


def chunks(entries: Iterator[tuple[bytes, bytes]], size: int = 10_000) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield entries in lists of some thousands."""
    while chunk := list(islice(entries, size)):
        yield chunk
