"""Connections that come to a listener as long as it is open, even if accepting one fails, as with too many open files."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

_log = logging.getLogger(__name__)

_AGAIN_S = 0.1


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
