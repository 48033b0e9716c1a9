"""Listeners, and the connections that come to one as long as it is open, even if accepting one fails: too many open files."""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from penstock.errors import PenstockError

_log = logging.getLogger(__name__)

_AGAIN_S = 0.1
_MOST_WAITING = 256


class Ports(NamedTuple):
    """The ports at which a host of a cluster may listen, for a firewall; any that are free by default."""

    first: int = 0
    last: int = 0

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


ANY_PORT = Ports()


def listener_at(host: str, ports: Ports) -> socket.socket:
    """Return a listener at the first of some ports that is free."""
    for port in range(ports.first, ports.last + 1):
        try:
            return socket.create_server((host, port), backlog=_MOST_WAITING)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise PenstockError(
        f"No port of {ports} (cluster_ports) is free at {host}. A host needs one for each of its slots, and one for its lane "
        f"server; the driver needs two. Set a wider range."
    )


def notice_lost_peer(connection: socket.socket, silent_s: int, every_s: int) -> None:
    """Let a connection fail if the host of its peer is lost: when that has been silent, and does not answer three probes.

    Where the system has no such options, it takes hours.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", silent_s), ("TCP_KEEPINTVL", every_s), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def close_listener(listener: socket.socket) -> None:
    """Close a listener, and end a pending `accept`, which `close` alone would not."""
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def connections_to(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield each connection until the listener is closed."""
    is_failing = False
    while True:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            time.sleep(_AGAIN_S)  # files may be free then; and who closes a listener shuts it down first
            if listener.fileno() < 0:
                return
            if not is_failing:
                _log.warning("cannot accept connections, and tries again: %s", error)
            is_failing = True
        else:
            is_failing = False
            yield connection
