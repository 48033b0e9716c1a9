"""`HandShakes`: the connections to a listener that have yet to prove that they know the key. Strangers can open many.

Whoever knows the key proves it at once. So if there are too many, the oldest is closed, and nobody waits for a place.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

MOST_HAND_SHAKES = 200


class HandShakes:
    """At most so many at a time. A connection that has proved that it knows the key does not count any more."""

    def __init__(self, most: int = MOST_HAND_SHAKES) -> None:
        self._most = most
        self._pending: dict[socket.socket, None] = {}  # the oldest first
        self._changing = threading.Lock()

    def begin(self, connection: socket.socket) -> Callable[[], None]:
        """Count a connection, and return the function that ends that; called by the thread that accepts, it does not raise."""
        try:
            watched = connection.dup()  # whatever becomes of the other one, such as a secured connection
        except OSError:  # too many open files: its thread notices
            connection.close()
            return lambda: None
        with self._changing:
            self._pending[watched] = None
            oldest = next(iter(self._pending)) if len(self._pending) > self._most else None
        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
            self._end(oldest)
        return lambda: self._end(watched)

    def _end(self, watched: socket.socket) -> None:
        with self._changing:
            self._pending.pop(watched, None)
        watched.close()
