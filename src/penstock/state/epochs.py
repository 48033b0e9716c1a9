"""What a lane writes about its epochs: the head (epoch, registers) and how the last epoch is taken back."""

from __future__ import annotations

import msgspec

from penstock.errors import StateError

META = "/lane"
"""The space of the lane itself; a store's name has no slash."""

HEAD = b"head"

_FORMAT = 1


class Head(msgspec.Struct, array_like=True, frozen=True):
    """The lane as of its last write. `undo` names the spaces that the last epoch touched; None: it can't be taken back."""

    epoch: int = -1
    registers: dict[str, int] = {}
    previous_epoch: int = -1
    previous_registers: dict[str, int] = {}
    undo: list[str] | None = None
    format: int = _FORMAT


_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_undo = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes | None]]).decode


def encode_head(head: Head) -> bytes:
    """The head's bytes."""
    return _encode(head)


def decode_head(data: bytes | None) -> Head:
    """The head from its bytes; that of a new lane from none."""
    if data is None:
        return Head()
    head = _decode_head(data)
    if head.format != _FORMAT:
        raise StateError(f"the lane is written in format {head.format}, and this is format {_FORMAT}: rebuild it")
    return head


def undo_key(space: str) -> bytes:
    """Where the old values of a space are kept."""
    return b"undo/" + space.encode()


def encode_undo(keys: list[bytes], old: list[bytes | None]) -> bytes:
    """All of a space's touched keys and their old values, as one blob."""
    return _encode((keys, old))


def decode_undo(data: bytes) -> tuple[list[bytes], list[bytes | None]]:
    """The keys and old values from the blob."""
    return _decode_undo(data)
