"""A connection between a lane server and its clients, or an instance and its standbys: frames, over a secured connection."""

from __future__ import annotations

import socket
import ssl
import struct

from penstock.errors import StateError
from penstock.state.remote.secured import KEY_BYTES, fill, is_readable, secured

__all__ = ["KEY_BYTES", "LONGEST", "Channel"]

_SIZE = struct.Struct(">I")
LONGEST = 64 << 20
"""The longest frame: answers are divided long before."""


class Channel:
    """An open connection. `is_server` says which side this is; both know `key`, and nobody else can say or hear anything."""

    def __init__(self, connection: socket.socket, key: bytes, is_server: bool) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = secured(connection, key, is_server=is_server)
        self.send(b"")
        self.receive(most=0)

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self._connection.sendall(_SIZE.pack(len(frame)) + frame)

    def receive(self, most: int = LONGEST) -> bytes:
        """Return the next frame; raises `EOFError` at the end, and `StateError` for what the other side did not write."""
        try:
            (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
            if size > most:
                raise StateError(f"A frame of {size} bytes is longer than {most}.")
            return self._exactly(size)
        except ssl.SSLEOFError as error:
            raise EOFError("The connection was closed.") from error
        except ssl.SSLError as error:
            raise StateError(f"A frame was not written with the key of this application: {error.reason}.") from error

    def settimeout(self, seconds: float | None) -> None:
        """Limit how long it may take to send or receive a part of a frame."""
        self._connection.settimeout(seconds)

    def is_readable(self, within_s: float) -> bool:
        """Whether there is something to receive within a time."""
        return is_readable(self._connection, within_s)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _exactly(self, size: int) -> bytes:
        parts = bytearray(size)
        fill(self._connection, memoryview(parts))
        return bytes(parts)
