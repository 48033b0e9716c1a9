"""The lane server of a host: a process that lets other hosts read the lanes here.

`python -m penstock.state.remote.server` reads its settings from standard input, as JSON, and writes its port to standard output.
It ends with the application or the executor that needs it, or when another server has taken its place.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.state import EngineKind
from penstock.state.remote.accepting import ANY_PORT, Ports, close_listener, connections_to, listener_at, notice_lost_peer
from penstock.state.remote.channel import Channel
from penstock.state.remote.hand_shakes import HandShakes
from penstock.state.remote.protocol import decode_request, encode
from penstock.state.remote.visits import LaneFiles, LaneVisit, Visit

_log = logging.getLogger(__name__)

LONGEST_REQUEST = 1 << 20
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
    ports: Ports = ANY_PORT

    def encode(self) -> bytes:
        """Serialize."""
        fields = {"lanes": self.lanes, "engine": self.engine, "host": self.host, "until": self.until, "ports": self.ports}
        return json.dumps({**fields, "key": base64.b64encode(self.key).decode()}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Serving:
        """Deserialize; the task that starts the server has written it."""
        fields = json.loads(data)
        return cls(**{**fields, "key": base64.b64decode(fields["key"]), "ports": Ports(*fields["ports"])})


class Server:
    """Accepts connections of those who know a key, until it is closed; each slot keeps one. `visit` is called for each."""

    def __init__(self, host: str, key: bytes, visit: Callable[[], Visit], ports: Ports = ANY_PORT) -> None:
        self._key = key
        self._visit = visit
        self._listener = listener_at(host, ports)
        self._hand_shakes = HandShakes()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    def run(self) -> None:
        """Serve, each connection in a thread of its own."""
        for connection in connections_to(self._listener):
            proved = self._hand_shakes.begin(connection)
            threading.Thread(target=self._serve, args=(connection, proved), daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        close_listener(self._listener)

    def _serve(self, connection: socket.socket, proved: Callable[[], None]) -> None:
        visit, channel = self._visit(), None
        try:
            connection.settimeout(HELLO_S)
            # After a minute: otherwise the snapshots of a lost host would stay open, and stores would grow.
            notice_lost_peer(connection, silent_s=30, every_s=10)
            channel = Channel(connection, self._key, is_server=True)
            proved()
            channel.settimeout(None)
            while True:
                request = decode_request(channel.receive(LONGEST_REQUEST))
                channel.send(encode(visit.answer(request)))
        except (OSError, EOFError, ValueError, PenstockError) as error:
            _log.debug("a connection ended: %s", error)
        finally:
            visit.close()
            connection.close()
            if channel is not None:
                channel.close()
            proved()


class LaneServer(Server):
    """Serves the lanes of a host."""

    def __init__(self, serving: Serving) -> None:
        files = LaneFiles(Path(serving.lanes), EngineKind(serving.engine))
        super().__init__(serving.host, serving.key, lambda: LaneVisit(files, self.close), serving.ports)


def main() -> None:
    """Serve until a client ends it, or the process that needs it ends."""
    serving = Serving.decode(sys.stdin.buffer.read())
    server = LaneServer(serving)
    running = threading.Thread(target=server.run, daemon=True)
    running.start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.close()
    while running.is_alive() and is_alive(serving.until):
        running.join(_LOOK_EVERY_S)
    os._exit(0)


def is_alive(pid: int) -> bool:
    """Whether a process of this host runs."""
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


if __name__ == "__main__":
    main()
