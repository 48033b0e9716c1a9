"""The lane server of a host: a process that lets other hosts read the lanes here.

`python -m penstock.lane_servers.server` reads its settings from standard input, as JSON, and writes its port to standard output.
It ends with the executor that needs it, or when another server has taken its place.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from penstock.errors import PenstockError, StateError
from penstock.lane_servers.channel import Channel
from penstock.lane_servers.protocol import Get, Measure, Page, Refused, Release, Request, Take, decode_request, encode
from penstock.state import Engine, EngineFactory, EngineKind, Snapshots

_log = logging.getLogger(__name__)

PAGE_ROWS = 1_000
PAGE_BYTES = 1 << 20
LONGEST_REQUEST = 1 << 20
MOST_CONNECTIONS = 200
HELLO_S = 5.0
"""How long a connection may take to prove that it knows the key."""

_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Serving:
    """What a server serves. `host` is where it listens; `until` is the process that needs it."""

    lanes: str
    """The directory of the lanes."""
    engine: str
    host: str
    key: bytes
    until: int

    def encode(self) -> bytes:
        """Serialize."""
        fields = {"lanes": self.lanes, "engine": self.engine, "host": self.host, "until": self.until}
        return json.dumps({**fields, "key": base64.b64encode(self.key).decode()}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Serving:
        """Deserialize; the task that starts the server has written it."""
        fields = json.loads(data)
        return cls(**{**fields, "key": base64.b64decode(fields["key"])})


class LaneFiles:
    """The lanes of a host, opened when they are first read, and again if a lane was rebuilt."""

    def __init__(self, directory: Path, engine: EngineKind) -> None:
        self._directory = directory
        self._engine = engine
        self._open: dict[int, tuple[tuple[int, int], Snapshots]] = {}
        self._lock = threading.Lock()

    def snapshot(self, lane: int) -> Engine:
        """Take a snapshot of a lane."""
        directory = self._directory / f"{lane:04}"
        with self._lock:
            try:
                found = directory.stat()
            except OSError:
                raise StateError(f"Lane {lane} is not on this host.") from None
            identity = (found.st_dev, found.st_ino)
            if lane not in self._open or self._open[lane][0] != identity:
                self._open[lane] = (identity, Snapshots(EngineFactory(self._engine, str(directory))))
            return self._open[lane][1].take()


class LaneServer:
    """Accepts connections until it is closed."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._files = LaneFiles(Path(serving.lanes), EngineKind(serving.engine))
        self._listener = socket.create_server((serving.host, 0))
        self._connections = threading.Semaphore(MOST_CONNECTIONS)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    def run(self) -> None:
        """Serve, each connection in a thread of its own."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if not self._connections.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        taken: dict[int, Engine] = {}
        try:
            connection.settimeout(HELLO_S)
            channel = Channel(connection, self._serving.key, is_server=True)
            connection.settimeout(None)
            while True:
                request = decode_request(channel.receive(LONGEST_REQUEST))
                channel.send(encode(self._answer(request, taken)))
        except (OSError, EOFError, ValueError, PenstockError) as error:
            _log.debug("a connection ended: %s", error)
        finally:
            for engine in taken.values():
                engine.close()
            connection.close()
            self._connections.release()

    def _answer(self, request: Request, taken: dict[int, Engine]) -> object:
        try:
            if isinstance(request, Take):
                number = max(taken, default=0) + 1
                taken[number] = self._files.snapshot(request.lane)
                return number
            if isinstance(request, Release):
                taken.pop(request.snapshot).close()
                return 1
            return _read(taken[request.snapshot], request)
        except (PenstockError, OSError, KeyError) as error:
            return Refused(str(error))


def _read(engine: Engine, request: Get | Page | Measure) -> object:
    if isinstance(request, Get):
        return engine.get_many(request.space, request.keys)
    if isinstance(request, Measure):
        return engine.count(request.space), engine.size(request.space)
    rows, size = [], 0
    for row in islice(engine.scan(request.space, request.lower, request.upper, request.is_reverse), PAGE_ROWS):
        rows.append(row)
        size += len(row[0]) + len(row[1])
        if size >= PAGE_BYTES:
            break
    return rows


def main() -> None:
    """Serve until the process that needs it ends."""
    serving = Serving.decode(sys.stdin.buffer.read())
    server = LaneServer(serving)
    threading.Thread(target=server.run, daemon=True).start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.close()
    while _is_alive(serving.until):
        time.sleep(_LOOK_EVERY_S)
    os._exit(0)


def _is_alive(pid: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


if __name__ == "__main__":
    main()
