"""What a lane stores about its epochs: the head (epoch, digests), and the undo data of epochs that may not be committed.

With exchanges, an epoch passes a lane several times, once per stage; each pass is a step that can be rolled back.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import msgspec

from penstock.errors import StateError

META = "/lane"
"""The space of the lane itself; a store's name has no slash."""

HEAD = b"head"

FORMAT = 5
"""The format of a lane's head and undo; a store of another format is rebuilt."""
_MASK = 2**64 - 1


class Step(msgspec.Struct, array_like=True, frozen=True):
    """One write of an epoch: the stage that wrote, and the digests and the id of the write before it."""

    stage: int
    digests: dict[str, int]
    spaces: list[str]
    write_id: str


class Applied(msgspec.Struct, array_like=True, frozen=True):
    """An epoch that can be rolled back: its number, that of the epoch before it, and its writes, first to last."""

    epoch: int
    previous: int
    steps: list[Step]

    def undo_keys(self) -> Iterator[bytes]:
        """Yield the keys of all its old values."""
        for step in self.steps:
            for space in step.spaces:
                yield undo_key(self.epoch, step.stage, space)


MARK_LIFE_MS = 12 * 3600 * 1000
"""A mark older than this is not used: the changelog may have lost tombstones since (delete.retention.ms, a day)."""


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """How far the changelogs reached when an epoch was committed, and when; a lane catches up from there."""

    epoch: int
    time_ms: int
    offsets: dict[str, int]
    """By `topic/partition`."""
    topic_ids: dict[str, str]
    """The ids of those topics, by name: a topic that was created again, or in another cluster, has another id."""


class Head(msgspec.Struct, array_like=True, frozen=True):
    """The lane as of its last write. `applied` are the epochs that can be rolled back, oldest first.

    `write_id` is a random id of that write: two stores of a lane at the same epoch have the same content only if they have the
    same id. `attempt` is that of the epoch's job.
    """

    epoch: int = -1
    digests: dict[str, int] = {}
    applied: list[Applied] = []
    mark: Mark | None = None
    incarnation: str = ""
    attempt: int = 0
    write_id: str = ""
    format: int = FORMAT

    @property
    def earliest(self) -> int:
        """The earliest epoch to which the lane can be rolled back."""
        return self.applied[0].previous if self.applied else self.epoch

    def followed_by(self, epoch: int, stage: int) -> list[Applied]:
        """Return the epochs with `epoch` as the last, of which `stage` is about to be written; raise if it cannot follow."""
        if epoch > self.epoch:
            return [*self.applied, Applied(epoch, self.epoch, [])]
        if epoch < self.epoch or not self.applied or stage <= self.applied[-1].steps[-1].stage:
            raise StateError(f"epoch {epoch}, stage {stage} cannot follow epoch {self.epoch}")
        return self.applied

    def without_last_step(self) -> Head:
        """Return the head before the last write of the last epoch."""
        *earlier, last = self.applied
        *steps, step = last.steps
        if steps:
            earlier.append(Applied(last.epoch, last.previous, steps))
        return msgspec.structs.replace(
            self, epoch=last.epoch if steps else last.previous, digests=step.digests, applied=earlier, write_id=step.write_id
        )

    def write_id_of(self, epoch: int) -> str | None:
        """Return the id of the last write of an epoch; None if it is not known any more."""
        if epoch == self.epoch:
            return self.write_id
        return next((one.steps[0].write_id for one in self.applied if one.previous == epoch), None)

    def after(self, epoch: int) -> list[Applied]:
        """Return the epochs after `epoch`, oldest first; raise if its content is not known any more."""
        if epoch != self.epoch and all(one.previous != epoch for one in self.applied):
            raise StateError(f"the lane is at epoch {self.epoch} and cannot be read as of epoch {epoch}")
        return [one for one in self.applied if one.epoch > epoch]


_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_undo = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes | None]]).decode


def encode_head(head: Head) -> bytes:
    """Serialize the head, with a checksum."""
    return _sealed(_encode(head))


def decode_head(data: bytes | None) -> Head:
    """Deserialize the head; None gives the head of a new lane."""
    if data is None:
        return Head()
    try:
        head = _decode_head(_unsealed(data, "The lane's head"))
    except msgspec.MsgspecError as error:
        raise StateError(f"The lane's head has another format or is damaged ({error}). Rebuild the lane.") from None
    if head.format != FORMAT:
        raise StateError(f"The lane has format {head.format}, but this version needs format {FORMAT}. Rebuild the lane.")
    return head


def undo_key(epoch: int, stage: int, space: str) -> bytes:
    """Return the key of a space's old values."""
    return b"undo/%d/%d/%s" % (epoch, stage, space.encode())


def encode_undo(keys: list[bytes], old: list[bytes | None]) -> bytes:
    """Serialize all changed keys of a space and their old values, as one blob."""
    return _sealed(_encode((keys, old)))


def decode_undo(data: bytes) -> tuple[list[bytes], list[bytes | None]]:
    """Deserialize the keys and old values."""
    try:
        return _decode_undo(_unsealed(data, "The undo data of an epoch"))
    except msgspec.MsgspecError as error:
        raise StateError(f"The undo data of an epoch has another format or is damaged ({error}). Rebuild the lane.") from None


def digest(keys: Iterable[bytes], values: Iterable[bytes]) -> int:
    """Return a checksum of entries that does not depend on their order, so that entries can be added and subtracted."""
    return sum(map(zlib.crc32, values, map(zlib.crc32, keys))) & _MASK


def changed_digest(before: int, keys: list[bytes], values: list[bytes | None], old: list[bytes | None]) -> int:
    """Return the digest of a space after these keys changed from their old to their new values."""
    return (before + _digest_of_some(keys, values) - _digest_of_some(keys, old)) & _MASK


def _digest_of_some(keys: list[bytes], values: list[bytes | None]) -> int:
    if None not in values:
        return digest(keys, values)  # type: ignore[arg-type]
    there = [key for key, value in zip(keys, values, strict=True) if value is not None]
    return digest(there, [value for value in values if value is not None])


def _sealed(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(4, "big")


def _unsealed(data: bytes, what: str) -> bytes:
    body = data[:-4]
    if zlib.crc32(body).to_bytes(4, "big") != data[-4:]:
        raise StateError(f"{what} is damaged. Rebuild the lane.")
    return body
