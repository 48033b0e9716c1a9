"""What a lane writes about its epochs: the head (epoch, digests) and how the last epoch is taken back.

An epoch of a topology with exchanges passes a lane several times, once per stage; each pass is a step that can be taken back.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import msgspec

from penstock.errors import StateError

META = "/lane"
"""The space of the lane itself; a store's name has no slash."""

HEAD = b"head"

_FORMAT = 3
_MASK = 2**64 - 1


class Step(msgspec.Struct, array_like=True, frozen=True):
    """One write of an epoch: the stage that wrote, and the digests as they were before."""

    stage: int
    digests: dict[str, int]
    spaces: list[str]


MARK_LIFE_MS = 12 * 3600 * 1000
"""A mark older than this is not used: deletions may have left the changelog since (delete.retention.ms, a day)."""


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """How far the changelogs reached when an epoch was committed, and when that was; a lane catches up from there."""

    epoch: int
    time_ms: int
    offsets: dict[str, int]
    """By `topic/partition`."""
    topic_ids: dict[str, str] = {}
    """Which topics those are, by name: a topic that was created again, or is another cluster's, has another id."""


class Head(msgspec.Struct, array_like=True, frozen=True):
    """The lane as of its last write. `steps` are the writes of the last epoch; None: it can't be taken back."""

    epoch: int = -1
    digests: dict[str, int] = {}
    previous_epoch: int = -1
    steps: list[Step] | None = None
    mark: Mark | None = None
    incarnation: str = ""
    format: int = _FORMAT


_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_undo = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes | None]]).decode


def encode_head(head: Head) -> bytes:
    """The head's bytes, with a checksum."""
    return _sealed(_encode(head))


def decode_head(data: bytes | None) -> Head:
    """The head from its bytes; that of a new lane from none."""
    if data is None:
        return Head()
    try:
        head = _decode_head(_unsealed(data, "the lane's head"))
    except msgspec.MsgspecError as error:
        raise StateError(f"the lane's head is written in another format, or damaged ({error}): rebuild it") from None
    if head.format != _FORMAT:
        raise StateError(f"the lane is written in format {head.format}, and this is format {_FORMAT}: rebuild it")
    return head


def undo_key(stage: int, space: str) -> bytes:
    """Where the old values of a space are kept."""
    return b"undo/%d/%s" % (stage, space.encode())


def encode_undo(keys: list[bytes], old: list[bytes | None]) -> bytes:
    """All of a space's touched keys and their old values, as one blob."""
    return _sealed(_encode((keys, old)))


def decode_undo(data: bytes) -> tuple[list[bytes], list[bytes | None]]:
    """The keys and old values from the blob."""
    try:
        return _decode_undo(_unsealed(data, "the undo of the last epoch"))
    except msgspec.MsgspecError as error:
        raise StateError(f"the undo of the last epoch is written in another format, or damaged ({error}): rebuild it") from None


def digest(keys: Iterable[bytes], values: Iterable[bytes]) -> int:
    """A checksum of entries that does not depend on their order: entries come and go by adding and subtracting theirs."""
    return sum(map(zlib.crc32, values, map(zlib.crc32, keys))) & _MASK


def changed_digest(before: int, keys: list[bytes], values: list[bytes | None], old: list[bytes | None]) -> int:
    """The digest of a space after these keys got new values in place of old ones."""
    return (before + _digest_of_some(keys, values) - _digest_of_some(keys, old)) & _MASK


def _digest_of_some(keys: list[bytes], values: list[bytes | None]) -> int:
    if None not in values:
        return digest(keys, values)  # type: ignore[arg-type]
    there = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    return digest([key for key, _ in there], [value for _, value in there])


def _sealed(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(4, "big")


def _unsealed(data: bytes, what: str) -> bytes:
    body = data[:-4]
    if zlib.crc32(body).to_bytes(4, "big") != data[-4:]:
        raise StateError(f"{what} is damaged: rebuild the lane")
    return body
