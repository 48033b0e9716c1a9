"""`RefusingLeader`: a proxy that refuses the first batch of each partition, as a leader does that has just been elected.

The refusal takes a while, so that batches that the client has sent meanwhile are there before it, and are accepted. Kafka's own
protocol is read only as far as needed: requests to produce, as librdkafka sends them, have one partition each.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from verification.harness.processes import HarnessError

if TYPE_CHECKING:
    from typing_extensions import Self

_START_S = 10
_PRODUCE = 0
_FLEXIBLE_SINCE = 9
_NOT_LEADER = 6


class RefusingLeader:
    """Listens on `port` of loopback while it is open, and forwards to `upstream` (host:port).

    `refused` are the partitions of which it has refused a batch.
    """

    def __init__(self, port: int, upstream: str, hold_s: float = 0.3) -> None:
        self._port = port
        host, upstream_port = upstream.rsplit(":", 1)
        self._upstream = host, int(upstream_port)
        self._hold_s = hold_s
        self.refused: list[tuple[str, int]] = []
        self._listens = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._ending: asyncio.Event
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="refusing-leader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._listens.wait(_START_S):
            raise HarnessError(f"nothing listens at port {self._port} after {_START_S} s")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    async def _run(self) -> None:
        """Serve until the end; what is open then is cancelled with the loop."""
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._listens.set()
        await self._ending.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(*self._upstream)
        answers: asyncio.Queue[bytes | None] = asyncio.Queue()  # in the order of requests; None is one of the broker
        answering = asyncio.create_task(self._answer(answers, up_reader, writer))
        try:
            while True:
                frame = await _frame(reader)
                refusal = self._refusal(frame)
                if refusal is None:
                    up_writer.write(frame)
                    await up_writer.drain()
                answers.put_nowait(refusal)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
            answering.cancel()
            up_writer.close()
            writer.close()

    async def _answer(
        self, answers: asyncio.Queue[bytes | None], up_reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                answer = await answers.get()
                if answer is None:
                    answer = await _frame(up_reader)
                else:
                    await asyncio.sleep(self._hold_s)
                writer.write(answer)
                await writer.drain()
        writer.close()

    def _refusal(self, frame: bytes) -> bytes | None:
        """Return the answer to the first batch of a partition, None for all else."""
        request = _produce_request(frame)
        if request is None or (request.topic, request.partition) in self.refused:
            return None
        self.refused.append((request.topic, request.partition))
        return _refused(request)


class _Produce(NamedTuple):
    correlation: int
    topic: str
    partition: int


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """Read a frame; return it with its length before it."""
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big"))


def _produce_request(frame: bytes) -> _Produce | None:
    """Return what a request to produce is about, None if it is another request."""
    api, version, correlation = struct.unpack_from(">hhi", frame, 4)
    if api != _PRODUCE:
        return None
    assert version >= _FLEXIBLE_SINCE, f"produce requests of version {version} are not known here"
    (client_length,) = struct.unpack_from(">h", frame, 12)
    at = 14 + max(client_length, 0) + 1  # no tagged fields
    id_length, at = _varint(frame, at)  # the transactional id
    at += max(id_length - 1, 0) + 2 + 4  # acks, timeout
    _, at = _varint(frame, at)  # topics
    name_length, at = _varint(frame, at)
    topic = frame[at : at + name_length - 1].decode()
    _, at = _varint(frame, at + name_length - 1)  # partitions
    return _Produce(correlation, topic, *struct.unpack_from(">i", frame, at))


def _refused(request: _Produce) -> bytes:
    """Return the answer that this broker does not lead the partition."""
    name = request.topic.encode()
    partition = struct.pack(">ihqqq", request.partition, _NOT_LEADER, -1, -1, -1) + bytes([1, 0, 0])
    topic = bytes([len(name) + 1]) + name + bytes([2]) + partition + bytes([0])
    body = struct.pack(">i", request.correlation) + bytes([0, 2]) + topic + struct.pack(">i", 0) + bytes([0])
    return struct.pack(">i", len(body)) + body


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        number, at, shift = number | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return number, at
