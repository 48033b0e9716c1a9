"""How a standby notices that the active instance is gone: by a connection to it.

A process that ends closes its connections at once, however it ends. A host that vanishes does not, nor does a process that hangs.
So the active instance sends an empty frame twice a second, and a standby gives it up when it has been silent for too long.
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple, Protocol

from penstock import machine
from penstock.errors import ConfigError, StateError
from penstock.runtime.standby.announcement import Announcement
from penstock.state.remote.accepting import close_listener, connections_to
from penstock.state.remote.channel import KEY_BYTES, Channel
from penstock.state.remote.hand_shakes import HandShakes

_log = logging.getLogger(__name__)

BEAT_S = 0.5
_HELLO_S = 2.0
"""How long a connection, the proof that both sides know the key, and each frame may take."""
_TICK_S = 0.2
_RETRY_S = 0.05


class Beacon:
    """Listens for standbys from its construction on, and lets each of them hear that this instance is alive."""

    def __init__(self, host: str, port: int) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)
        self._host = host
        self._listener = _listener(host, port)
        self._ended = threading.Event()
        self._hand_shakes = HandShakes()
        threading.Thread(target=self._listen, name="penstock-beacon", daemon=True).start()

    def announcement(self, incarnation: str) -> Announcement:
        """Return what standbys have to know about this instance."""
        address, port = self._listener.getsockname()[:2]
        only_on = socket.gethostname() if _ip(address).is_loopback else ""
        return Announcement(incarnation, self._host, port, self._key, only_on)

    def close(self) -> None:
        """Let standbys take over."""
        close_listener(self._listener)
        self._ended.set()  # last: who loses a connection and comes back must be refused

    def _listen(self) -> None:
        for connection in connections_to(self._listener):
            proved = self._hand_shakes.begin(connection)
            threading.Thread(target=self._serve, args=(connection, proved), name="penstock-beat", daemon=True).start()

    def _serve(self, connection: socket.socket, proved: Callable[[], None]) -> None:
        try:
            connection.settimeout(_HELLO_S)
            with closing(Channel(connection, self._key, is_server=True)) as channel:
                proved()
                while not self._ended.wait(BEAT_S):
                    channel.send(b"")
        except (OSError, EOFError, StateError) as error:
            _log.debug("a standby has left: %s", error)
        finally:
            connection.close()
            proved()


def _listener(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if _ip(str(address[0])).is_unspecified:
            raise ConfigError(f"standby_address: {host!r} is no address that others could connect to. Set one of this host.")
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"standby_address: cannot listen at {host!r}, port {port}: {error.strerror}. Set an address of this host, with "
            f"port 0 for any free port."
        ) from None


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(address.partition("%")[0])


class Signal(Protocol):
    """What standbys hear of an active instance."""

    def announcement(self, incarnation: str) -> Announcement:
        """Return what standbys have to know about this instance."""

    def close(self) -> None:
        """Let standbys take over."""


class Link(Protocol):
    """How a standby hears an instance."""

    def is_alive(self) -> bool:
        """Whether the instance is heard within a moment; raises if the connection is lost or cannot be opened."""

    def close(self) -> None:
        """Stop listening."""


class Beacons(Protocol):
    """How instances hear each other."""

    def open(self, host: str, port: int) -> Signal:
        """Return the signal of an instance in this process, at an address of this host."""

    def link(self, found: Announcement) -> Link:
        """Return what hears an instance."""


class Connections:
    """Instances hear each other over connections."""

    def open(self, host: str, port: int) -> Beacon:
        """See `Beacons.open`."""
        return Beacon(host, port)

    def link(self, found: Announcement) -> HeldLink:
        """See `Beacons.link`."""
        return HeldLink(found)


class _Current:
    """How the instances in this process hear others."""

    beacons: Beacons = Connections()


@contextmanager
def replaced(by: Beacons) -> Iterator[None]:
    """Let instances hear each other in another way in this block, as a simulation does."""
    before, _Current.beacons = _Current.beacons, by
    try:
        yield
    finally:
        _Current.beacons = before


def open_beacon(host: str, port: int) -> Signal:
    """Open the signal of this instance; raises if the address is not one of this host."""
    return _Current.beacons.open(host, port)


class Gone(NamedTuple):
    """Why an instance counts as gone, and when it was last heard, by `machine.monotonic`."""

    why: str
    heard: float


def watch(found: Announcement, timeout_s: float, goes_on: Callable[[], bool]) -> Gone | None:
    """Wait until an instance is gone; return None if `goes_on` says no before. It is called several times a second, as long as
    the instance may be alive.

    A connection that is lost is opened again. If nobody listens there, or someone else, the instance is gone. If that cannot be
    found out, it is gone after `timeout_s`.
    """
    heard = machine.monotonic()
    with closing(_Current.beacons.link(found)) as link:
        while True:
            try:
                if link.is_alive():
                    heard = machine.monotonic()
            except (ConnectionRefusedError, StateError):
                return Gone(f"nobody listens at {found.host}:{found.port} any more", heard)
            except (OSError, EOFError) as error:
                _log.debug("no connection to the active instance: %s", error)
                link.close()
                machine.sleep(_RETRY_S)
            if machine.monotonic() - heard > timeout_s:
                return Gone(f"it has been silent for {timeout_s:g} s", heard)
            if not goes_on():
                return None


class HeldLink:
    """A standby's connection to an instance, opened when it is needed."""

    def __init__(self, found: Announcement) -> None:
        self._found = found
        self._channel: Channel | None = None

    def is_alive(self) -> bool:
        """Whether the instance is heard within a moment; raises if the connection is lost or cannot be opened."""
        if self._channel is None:
            connection = socket.create_connection((self._found.host, self._found.port), _HELLO_S)
            try:
                self._channel = Channel(connection, self._found.key, is_server=False)
            except BaseException:
                connection.close()
                raise
            return True
        if not self._channel.is_readable(_TICK_S):
            return False
        self._channel.receive(most=0)
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None
