"""Messages between the driver and its slots, over a socket that only the two have.

A message is a frame of a kind and its content. Requests are pickled: a slot trusts the driver that has started it, and nobody
else can write to the socket. Answers are Arrow or MessagePack. Errors cross as their type, their text and where they were raised.
"""

from __future__ import annotations

import socket
import struct
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import msgspec
import pyarrow as pa

from penstock import errors
from penstock.engines.port import TaskFailedError
from penstock.errors import PenstockError, ProcessingError, text_of
from penstock.state.remote.secured import fill

_LONGEST = 4_000
_FRAME = struct.Struct("!BQ")


class Kind(IntEnum):
    """What a frame contains."""

    PROGRAM = 1
    REQUEST = 2
    ROWS = 3
    VALUE = 4
    PROGRESS = 5
    ERROR = 6
    FORK = 7
    HELLO = 8


def send(to: socket.socket, kind: Kind, content: bytes | pa.Buffer) -> None:
    """Send a frame."""
    body = memoryview(content)
    to.sendall(_FRAME.pack(kind, len(body)))
    if body:
        to.sendall(body)


def receive(of: socket.socket) -> tuple[Kind, pa.Buffer]:
    """Receive a frame; raises `EOFError` if the other process has ended."""
    header = bytearray(_FRAME.size)
    fill(of, memoryview(header))
    kind, size = _FRAME.unpack(header)
    content = pa.allocate_buffer(size)
    if size:
        fill(of, memoryview(content).cast("B"))
    return Kind(kind), content


def send_rows(to: socket.socket, batches: Sequence[pa.RecordBatch]) -> None:
    """Send batches of one schema as an Arrow stream, which is never in memory as a whole."""
    if not batches:
        send(to, Kind.ROWS, b"")
        return
    to.sendall(_FRAME.pack(Kind.ROWS, _stream_size(batches)))
    with to.makefile("wb") as stream:
        _write(stream, batches)


def _stream_size(batches: Sequence[pa.RecordBatch]) -> int:
    counter = pa.MockOutputStream()
    _write(counter, batches)
    return int(counter.size())


def _write(sink: Any, batches: Sequence[pa.RecordBatch]) -> None:
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def unpacked(content: pa.Buffer) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow stream, without copying them."""
    if not content.size:
        return []
    with pa.ipc.open_stream(content) as reader:
        return list(reader)


def described(error: BaseException) -> bytes:
    """Return an error as the content of a frame."""
    kind = type(error).__name__ if isinstance(error, PenstockError) else ""
    return msgspec.msgpack.encode((kind, text_of(error), "".join(traceback.format_exception(error))))


def located(where: str, left: int | None) -> bytes:
    """Return where a restore is, and how many offsets it has left to read, as the content of a frame."""
    return msgspec.msgpack.encode((where, left))


def raised(content: bytes | pa.Buffer) -> PenstockError:
    """Return the error that a frame describes."""
    kind, text, trace = _decode_error(content)
    if not kind:
        return TaskFailedError(f"Unexpected failure: {trace[-_LONGEST:]}")
    found = getattr(errors, kind, ProcessingError)
    return found(text)


decode_located: Callable[[bytes], tuple[str, int | None]] = msgspec.msgpack.Decoder(tuple[str, int | None]).decode
_decode_error = msgspec.msgpack.Decoder(tuple[str, str, str]).decode
