"""`RemoteEngine`: a lane on another host as an engine for reading, through the server of that host."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TypeVar

import msgspec

from penstock.advance import advanced
from penstock.errors import LaneMovedError, NotReadyError, StateError
from penstock.state import Engine, SpaceBatch
from penstock.state.engines.engine import Expected
from penstock.state.remote.channel import Channel
from penstock.state.remote.protocol import (
    Copy,
    End,
    Get,
    Measure,
    Page,
    Part,
    Refused,
    Release,
    Request,
    Take,
    decode_copied,
    decode_number,
    decode_part,
    decode_rows,
    decode_sizes,
    decode_values,
    encode,
)

T = TypeVar("T")

TIMEOUT_S = 10.0
Address = tuple[str, int]


@contextmanager
def asking_to_retry() -> Iterator[None]:
    """Ask who queries to retry if a lane is on its way to another host."""
    try:
        yield
    except LaneMovedError as error:
        raise NotReadyError(f"A lane is moving to another host, or its host is lost. Retry. ({error})") from error


class LaneClient:
    """A connection to a lane server, opened when it is first needed; one request at a time, each within `patience_s`."""

    def __init__(self, address: Address, key: bytes, patience_s: float = TIMEOUT_S) -> None:
        self._address = address
        self._key = key
        self.patience_s: float = patience_s
        self._channel: Channel | None = None
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return "{}:{}".format(*self._address)

    def ask(self, request: Request, decode: Callable[[bytes], T | Refused]) -> T:
        """Return the answer; raises `LaneMovedError` if the server does not give one."""
        with self._connected() as channel:
            channel.send(encode(request))
            answer = decode(channel.receive())
        if isinstance(answer, Refused):
            raise LaneMovedError(answer.why)
        return answer

    def reach(self) -> None:
        """Connect, if that is not done; raises `LaneMovedError` if the server does not answer."""
        with self._connected():
            pass

    @contextmanager
    def _connected(self) -> Iterator[Channel]:
        with self._lock:
            try:
                if self._channel is None:
                    self._channel = self._opened()
                yield self._channel
            except (OSError, EOFError, StateError, msgspec.MsgspecError) as error:
                self._close()
                raise LaneMovedError(f"The lane server at {self} does not answer: {error}") from error

    def _opened(self) -> Channel:
        connection = socket.create_connection(self._address, min(TIMEOUT_S, self.patience_s))
        try:
            channel = Channel(connection, self._key, is_server=False)
        except BaseException:
            connection.close()
            raise
        channel.settimeout(self.patience_s)
        return channel

    def close(self) -> None:
        """Close the connection, and with it all snapshots."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


def end_servers(addresses: Iterable[Address], key: bytes) -> None:
    """End the servers of an application; those that do not answer have ended already, or end with their executors."""
    for address in addresses:
        with suppress(LaneMovedError), closing(LaneClient(address, key)) as client:
            client.ask(End(), decode_number)


class RemoteEngine:
    """A snapshot of a lane on another host; see `Engine`. It can only be read."""

    def __init__(self, client: LaneClient, lane: int) -> None:
        self._client = client
        self._snapshot: int | None = client.ask(Take(lane), decode_number)

    def get(self, space: str, key: bytes) -> bytes | None:
        """See `Engine.get`."""
        return self.get_many(space, [key])[0]

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Engine.get_many`."""
        found: list[bytes | None] = []
        while len(found) < len(keys):
            found += self._client.ask(Get(self._number, space, list(keys[len(found) :])), decode_values)
        return found

    def scan(self, space: str, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """See `Engine.scan`; reads pages."""
        while rows := self._client.ask(Page(self._number, space, lower, upper, reverse), decode_rows):
            yield from rows
            if reverse:
                upper = rows[-1][0]
            else:
                lower = rows[-1][0] + b"\0"

    def count(self, space: str) -> int:
        """See `Engine.count`."""
        return self._client.ask(Measure(self._number, space), decode_sizes)[0]

    def size(self, space: str) -> int:
        """See `Engine.size`."""
        return self._client.ask(Measure(self._number, space), decode_sizes)[1]

    def copied(self) -> tuple[int, Iterator[bytes]]:
        """Return the whole store as a compact file of its own: the size of that file, and its content in parts."""
        size, is_whole, grown_at = 0, False, time.monotonic()
        while not is_whole:
            before = size
            size, is_whole = self._client.ask(Copy(self._number), decode_copied)
            if size > before:
                grown_at = time.monotonic()
                advanced(f"waiting for {self._client}, which has copied {size} bytes")
            elif time.monotonic() - grown_at > self._client.patience_s:
                raise LaneMovedError(f"{self._client} has copied {size} bytes of a lane, and no more for a while.")
        return size, self._parts(size)

    def _parts(self, size: int) -> Iterator[bytes]:
        offset = 0
        while offset < size:
            part = self._client.ask(Part(self._number, offset), decode_part)
            if not part:
                raise LaneMovedError(f"The copy of a lane ends after {offset} of {size} bytes.")
            offset += len(part)
            advanced(f"receiving byte {offset} of {size} from {self._client}")
            yield part

    def write(self, batch: Sequence[SpaceBatch], expected: Expected | None = None) -> None:
        """Raise: the lane belongs to its host."""
        raise StateError("A lane on another host can only be read.")

    def snapshot(self) -> Engine:
        """Return itself: it does not change."""
        return self

    def refresh(self) -> None:
        """Do nothing: it does not change."""

    def close(self) -> None:
        """Release the snapshot."""
        number, self._snapshot = self._snapshot, None
        if number is not None:
            with suppress(LaneMovedError):  # it is gone with the connection
                self._client.ask(Release(number), decode_number)

    @property
    def _number(self) -> int:
        if self._snapshot is None:
            raise StateError("The snapshot is closed.")
        return self._snapshot


class LaneClients:
    """The connections of a process to lane servers, by address."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._clients: dict[Address, LaneClient] = {}
        self._lock = threading.Lock()

    def to(self, address: Address) -> LaneClient:
        """Return the connection to a server."""
        with self._lock:
            return self._clients.setdefault(address, LaneClient(address, self._key))

    def snapshot(self, address: Address, lane: int) -> RemoteEngine:
        """Take a snapshot of a lane."""
        return RemoteEngine(self.to(address), lane)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()


_of_process: dict[bytes, LaneClients] = {}


def clients_of(key: bytes) -> LaneClients:
    """Return the connections of this process, which stay open from task to task."""
    if key not in _of_process:
        _of_process.clear()
        _of_process[key] = LaneClients(key)
    return _of_process[key]


class RemoteSnapshots:
    """Snapshots of a lane wherever it is now: `address` returns that of its server."""

    are_cheap = False
    """Whether taking one costs microseconds: it is a request."""

    def __init__(self, clients: LaneClients, address: Callable[[], Address], lane: int) -> None:
        self._clients = clients
        self._address = address
        self._lane = lane

    def take(self) -> Engine:
        """Take a snapshot of the current content."""
        return self._clients.snapshot(self._address(), self._lane)

    def close(self) -> None:
        """Close the connections, which the snapshots of other lanes share."""
        self._clients.close()
