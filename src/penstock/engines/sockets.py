"""Sockets between the driver and its slots. What is started ahead uses them before anything larger is imported."""

from __future__ import annotations

import socket

_BUFFER_BYTES = 4 << 20


def for_tables(connection: socket.socket) -> socket.socket:
    """Return a connection with buffers for large tables."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    return connection
