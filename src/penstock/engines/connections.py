"""Connections between the driver and its slots, and between slots: a Unix socket on one machine, TLS on a network."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from penstock.engines.sockets import for_tables
from penstock.state.remote.accepting import ANY_PORT, Ports, listener_at, notice_lost_peer
from penstock.state.remote.secured import secured

Address = str | tuple[str, int]
"""Of a listener: a path on this machine, or a host and a port."""

_CONNECT_S = 10.0
_MOST_WAITING = 256
_MOST_OF_DIRECTORY = 60
"""Bytes of a temporary directory in which paths of sockets still fit: systems allow 103 of those."""


def socket_directory(purpose: str) -> Path:
    """Return a new directory for the sockets of this machine, which only this user can open."""
    usual = tempfile.gettempdir()
    is_short = len(os.fsencode(usual)) <= _MOST_OF_DIRECTORY
    return Path(tempfile.mkdtemp(prefix=f"penstock-{purpose}-", dir=usual if is_short else Path("/", "tmp")))


def listening(where: Path | str, ports: Ports = ANY_PORT) -> tuple[socket.socket, Address]:
    """Return a listener and its address: at a path, in a directory that only this user can open, or at a host's name."""
    if isinstance(where, str):
        listener = listener_at(where, ports)
        return listener, (where, int(listener.getsockname()[1]))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(where))
    listener.listen(_MOST_WAITING)
    return listener, str(where)


def accepted(connection: socket.socket, key: bytes, within_s: float) -> socket.socket:
    """Return a connection that a listener has accepted, secured if it comes over a network."""
    connection.settimeout(within_s)
    for_tables(connection)
    if connection.family == socket.AF_UNIX:
        return connection
    return secured(prompt(connection), key, is_server=True)


def connected(to: Address, key: bytes) -> socket.socket:
    """Return a connection to a listener; on a network it is secured, and ends soon after the other host is lost."""
    if isinstance(to, str):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(to)
        except OSError:
            connection.close()
            raise
        return for_tables(connection)
    connection = socket.create_connection(to, _CONNECT_S)
    secured_connection = secured(for_tables(prompt(connection)), key, is_server=False)
    secured_connection.settimeout(None)
    return secured_connection


def prompt(connection: socket.socket) -> socket.socket:
    """Return a network connection that sends at once, and notices a lost peer where the system can."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    notice_lost_peer(connection, silent_s=3, every_s=2)
    return connection
