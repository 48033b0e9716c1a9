"""Messages between the driver and its worker processes, over a socket that only the two have.

A message is a frame of a kind and its content. Requests are pickled: a worker trusts the driver that has started it, and nobody
else can write to the socket. Answers are Arrow or MessagePack.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from enum import IntEnum

import pyarrow as pa

_FRAME = struct.Struct("!BQ")
_BUFFER_BYTES = 4 << 20


class Kind(IntEnum):
    """What a frame contains."""

    PROGRAM = 1
    REQUEST = 2
    ROWS = 3
    VALUE = 4
    PROGRESS = 5
    ERROR = 6
    FORK = 7


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets with buffers for large tables."""
    pair = socket.socketpair()
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    return pair


def send(to: socket.socket, kind: Kind, content: bytes | pa.Buffer) -> None:
    """Send a frame."""
    body = memoryview(content)
    to.sendall(_FRAME.pack(kind, len(body)))
    if body:
        to.sendall(body)


def receive(of: socket.socket) -> tuple[Kind, pa.Buffer]:
    """Receive a frame; raises `EOFError` if the other process has ended."""
    header = bytearray(_FRAME.size)
    _fill(of, memoryview(header))
    kind, size = _FRAME.unpack(header)
    content = pa.allocate_buffer(size)
    if size:
        _fill(of, memoryview(content).cast("B"))
    return Kind(kind), content


def _fill(of: socket.socket, view: memoryview) -> None:
    place = 0
    while place < len(view):
        read = of.recv_into(view[place:])
        if not read:
            raise EOFError("the other process has closed its socket")
        place += read


def packed(batches: Iterable[pa.RecordBatch]) -> pa.Buffer:
    """Return batches of one schema as an Arrow stream; no batches are an empty buffer."""
    sink: pa.BufferOutputStream | None = None
    writer = None
    for batch in batches:
        if writer is None:
            sink = pa.BufferOutputStream()
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
    if writer is None or sink is None:
        return pa.py_buffer(b"")
    writer.close()
    return sink.getvalue()


def unpacked(content: pa.Buffer) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow stream, without copying them."""
    if not content.size:
        return []
    with pa.ipc.open_stream(content) as reader:
        return list(reader)
