"""The requests to lane servers and to the driver, and their answers. A snapshot belongs to the connection that has taken it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

GLOBALS = -1
"""Instead of the number of a lane: the global tables, which the driver has."""


class Take(msgspec.Struct, tag="take", frozen=True):
    """Take a snapshot of a lane; the answer is its number."""

    lane: int


class Get(msgspec.Struct, tag="get", frozen=True):
    """Read keys; the answer is their values, of the first ones only if all would be too long for a frame."""

    snapshot: int
    space: str
    keys: list[bytes]


class Page(msgspec.Struct, tag="page", frozen=True):
    """Scan from `lower` (inclusive) to `upper` (exclusive); the answer is some rows, none at the end."""

    snapshot: int
    space: str
    lower: bytes | None
    upper: bytes | None
    is_reverse: bool


class Measure(msgspec.Struct, tag="measure", frozen=True):
    """Count the entries of a space and their bytes; the answer is both."""

    snapshot: int
    space: str


class Release(msgspec.Struct, tag="release", frozen=True):
    """Close a snapshot; the answer is True."""

    snapshot: int


class Copy(msgspec.Struct, tag="copy", frozen=True):
    """Copy the whole store of a snapshot into a file, which is kept as long as the snapshot. It is asked for until it is done.

    The answer, after a moment, is how many bytes the file has, and whether it is whole.
    """

    snapshot: int


class Part(msgspec.Struct, tag="part", frozen=True):
    """Read the file of a copy from `offset`; the answer is some bytes."""

    snapshot: int
    offset: int


class Publish(msgspec.Struct, tag="publish", frozen=True):
    """Copy a lane, as it is now, to a directory that all hosts reach; the answer is its epoch, -1 if it has none."""

    lane: int
    uri: str
    application_id: str
    shards: int
    lanes: int


class End(msgspec.Struct, tag="end", frozen=True):
    """End the server, whose application has ended; the answer, if one comes, is 1."""


class Locate(msgspec.Struct, tag="locate", frozen=True):
    """Ask the driver what is committed, and where; the answer is `Located`."""


Request = Take | Get | Page | Measure | Release | Copy | Part | Publish | End | Locate


class Located(msgspec.Struct, tag="located", frozen=True):
    """An answer: the epoch of the last commit, and the address of each lane's server."""

    epoch: int
    servers: list[tuple[str, int]]


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """An answer: why a request failed."""

    why: str


encode: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode
decode_request: Callable[[bytes], Request] = msgspec.msgpack.Decoder(Request).decode
decode_number: Callable[[bytes], int | Refused] = msgspec.msgpack.Decoder(int | Refused).decode
decode_copied: Callable[[bytes], tuple[int, bool] | Refused] = msgspec.msgpack.Decoder(tuple[int, bool] | Refused).decode
decode_part: Callable[[bytes], bytes | Refused] = msgspec.msgpack.Decoder(bytes | Refused).decode
decode_values: Callable[[bytes], list[bytes | None] | Refused] = msgspec.msgpack.Decoder(list[bytes | None] | Refused).decode
decode_rows: Callable[[bytes], list[tuple[bytes, bytes]] | Refused] = msgspec.msgpack.Decoder(
    list[tuple[bytes, bytes]] | Refused
).decode
decode_sizes: Callable[[bytes], tuple[int, int] | Refused] = msgspec.msgpack.Decoder(tuple[int, int] | Refused).decode
decode_located: Callable[[bytes], Located | Refused] = msgspec.msgpack.Decoder(Located | Refused).decode
