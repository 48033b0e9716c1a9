"""The listener at which the tasks of the lane job register with the driver, and the newest slot of each position."""

from __future__ import annotations

import hmac
import logging
import secrets
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Callable, Container, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from penstock.engines.connections import Address, accepted, listening, socket_directory
from penstock.engines.messages import Kind, receive, send
from penstock.engines.slots import Slot
from penstock.engines.watching import Watch
from penstock.errors import StateError
from penstock.spark.lane_task import Hello, decode_hello
from penstock.state.remote.accepting import ANY_PORT, Ports, close_listener, connections_to
from penstock.state.remote.hand_shakes import HandShakes

_log = logging.getLogger(__name__)

_HELLO_S = 10.0
_CHALLENGE_BYTES = 32
_DIGEST_BYTES = sha256().digest_size


class Registration:
    """Accepts tasks that know the key, and gives each the program. `host` is the driver's address, None on a single machine.

    `is_there` says whether a host answers.
    """

    def __init__(
        self,
        packed_program: bytes,
        host: str | None,
        is_there: Callable[[str], bool] = lambda host: True,
        ports: Ports = ANY_PORT,
    ) -> None:
        self.key: bytes = secrets.token_bytes(_CHALLENGE_BYTES)
        self._program = packed_program
        self._is_there = is_there
        self._is_here = host is None
        self._directory: Path | None = None
        self.address: Address
        self._listener, self.address = listening(self._where(host), ports)
        self._slots: dict[int, tuple[Slot, Hello]] = {}
        self._watches: dict[str, Watch] = {}
        self._changed = threading.Condition()
        self._hand_shakes = HandShakes()
        threading.Thread(target=self._accept, name="penstock-slots", daemon=True).start()

    @property
    def hosts(self) -> Mapping[str, int]:
        """The number of slots that are there, by host."""
        with self._changed:
            return Counter(slot.host for slot, _ in self._slots.values() if not slot.is_lost)

    @property
    def live(self) -> dict[int, Slot]:
        """The slots that are there, by position."""
        with self._changed:
            return {position: slot for position, (slot, _) in sorted(self._slots.items()) if not slot.is_lost}

    def has_been(self, position: int) -> bool:
        """Whether a slot has registered at a position, even if it is lost now."""
        with self._changed:
            return position in self._slots

    def wait_for(self, is_there: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is so, which may change with each slot that comes; return whether it is."""
        with self._changed:
            return self._changed.wait_for(is_there, timeout_s)

    def notify(self) -> None:
        """Let those that wait look again."""
        with self._changed:
            self._changed.notify_all()

    def close_slots(self, positions: Container[int]) -> None:
        """Close the connections at some positions: their tasks end when they have answered."""
        for position, slot in self.live.items():
            if position in positions:
                slot.close()

    def close(self) -> None:
        """Accept no others, and close all connections."""
        close_listener(self._listener)
        for slot in self.live.values():
            slot.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _where(self, host: str | None) -> Path | str:
        if host is not None:
            return host
        self._directory = socket_directory("slots")
        return self._directory / "driver"

    def _accept(self) -> None:
        for connection in connections_to(self._listener):
            proved = self._hand_shakes.begin(connection)
            threading.Thread(target=self._greet, args=(connection, proved), name="penstock-slot-hello", daemon=True).start()

    def _greet(self, connection: socket.socket, proved: Callable[[], None]) -> None:
        try:
            connection = accepted(connection, self.key, _HELLO_S)
            hello = self._introduced(connection)
            send(connection, Kind.PROGRAM, self._program)
        except (OSError, EOFError, ValueError, StateError, msgspec.MsgspecError) as error:
            _log.warning("refused a connection to the slots' listener: %s", error)
            connection.close()
            return
        finally:
            proved()
        with self._changed:
            watch = self._watches.setdefault(hello.host, Watch(partial(self._is_there, hello.host)))
            slot = Slot(connection, hello.host, hello.process, watch, is_here=self._is_here)
            known = self._slots.get(hello.position)
            if known is not None and known[1].task > hello.task:
                slot.close()  # an earlier attempt that comes late
                return
            if known is not None:
                known[0].close()
            self._slots[hello.position] = (slot, hello)
            self._changed.notify_all()

    def _introduced(self, connection: socket.socket) -> Hello:
        """Return what a task says about itself; raise if it does not know the key."""
        challenge = secrets.token_bytes(_CHALLENGE_BYTES)
        send(connection, Kind.HELLO, challenge)
        _, content = receive(connection)
        answer = bytes(content)
        digest, hello = answer[:_DIGEST_BYTES], answer[_DIGEST_BYTES:]
        if not hmac.compare_digest(digest, hmac.digest(self.key, challenge + hello, "sha256")):
            raise ValueError("it does not know the key")
        connection.settimeout(None)
        return decode_hello(hello)
