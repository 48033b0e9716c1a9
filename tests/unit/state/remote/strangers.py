"""Connections of strangers, who do not know the key, and keep a listener busy with a byte now and then."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def dripping(address: tuple[str, int], count: int, every_s: float = 0.2) -> Iterator[None]:
    """Hold so many connections; one that is closed is opened again."""
    ended, began = threading.Event(), threading.Event()
    held: list[socket.socket | None] = [None] * count

    def drip() -> None:
        while not ended.is_set():
            held[:] = [_held(connection, address) for connection in held]
            began.set()
            ended.wait(every_s)

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    began.wait(20)
    try:
        yield
    finally:
        ended.set()
        thread.join(20)
        for connection in held:
            if connection is not None:
                connection.close()


def _held(connection: socket.socket | None, address: tuple[str, int]) -> socket.socket | None:
    """Send a byte over a connection, or a new one; None if it is closed."""
    try:
        connection = connection or socket.create_connection(address, 1)
        connection.send(b"\0")
    except OSError:
        if connection is not None:
            connection.close()
        return None
    return connection
