"""Connections that come to a listener as long as it is open, even if accepting one fails, as with too many open files."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator

_log = logging.getLogger(__name__)

_AGAIN_S = 0.1


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
