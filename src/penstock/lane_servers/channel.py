"""A connection between a lane server and its clients: frames that only holders of the application's key can write or replay.

Both sides prove that they know the key, each for a random number of the other one. Every frame then has a digest of itself, its
number and both random numbers, under the key. Frames are not encrypted.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
from hashlib import blake2b

from penstock.errors import StateError

KEY_BYTES = 32
_NONCE_BYTES = 16
_DIGEST_BYTES = 16
_SIZE = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")
LONGEST = 64 << 20
"""The longest frame: answers are divided long before."""


class Channel:
    """An open connection. `is_server` says which side this is: the digests of the two sides differ."""

    def __init__(self, connection: socket.socket, key: bytes, is_server: bool) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._key = key
        self._sides = (b"server", b"client") if is_server else (b"client", b"server")
        self._sent = 0
        self._received = 0
        own = secrets.token_bytes(_NONCE_BYTES)
        connection.sendall(own)
        other = self._exactly(_NONCE_BYTES)
        self._session = other + own if is_server else own + other
        self.send(b"")
        self.receive(most=0)

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        digest = self._digest(self._sides[0], self._sent, frame)
        self._sent += 1
        self._connection.sendall(_SIZE.pack(len(frame)) + digest + frame)

    def receive(self, most: int = LONGEST) -> bytes:
        """Return the next frame; raises `EOFError` at the end, and `StateError` for what the other side did not write."""
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        if size > most:
            raise StateError(f"A frame of {size} bytes is longer than {most}.")
        digest = self._exactly(_DIGEST_BYTES)
        frame = self._exactly(size)
        if not hmac.compare_digest(digest, self._digest(self._sides[1], self._received, frame)):
            raise StateError("A frame was not written with the key of this application.")
        self._received += 1
        return frame

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _digest(self, side: bytes, number: int, frame: bytes) -> bytes:
        made = blake2b(key=self._key, digest_size=_DIGEST_BYTES, person=side)
        made.update(self._session + _NUMBER.pack(number))
        made.update(frame)
        return made.digest()

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            found = self._connection.recv(size - len(parts))
            if not found:
                raise EOFError("The connection was closed.")
            parts += found
        return bytes(parts)
