"""Secured connections: only those who know the key can say, hear, change or pretend anything."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from penstock.errors import StateError
from penstock.state.remote.secured import KEY_BYTES, is_readable, secured

KEY, OTHER_KEY = b"k" * KEY_BYTES, b"o" * KEY_BYTES
SECRET = b"an amount that nobody may see"
PATIENCE_S = 10.0


class Wire:
    """Two ends of a connection, and someone in between who notes all bytes, and changes one of them if told to."""

    def __init__(self, opened: ExitStack) -> None:
        self.seen = bytearray()
        self.is_changing = False
        self.ends: list[socket.socket] = []
        inner: list[socket.socket] = []
        for _ in range(2):
            end, there = (opened.enter_context(each) for each in socket.socketpair())
            end.settimeout(PATIENCE_S)
            self.ends.append(end)
            inner.append(there)
        for source, target in (inner, inner[::-1]):
            threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while found := source.recv(1 << 16):
                self.seen += found
                target.sendall(found[:-1] + bytes([found[-1] ^ 1]) if self.is_changing else found)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with ExitStack() as opened:
        yield Wire(opened)


def both(wire: Wire, client_key: bytes = KEY) -> tuple[socket.socket, socket.socket]:
    """The two secured ends: of the server and of the client."""
    found: list[socket.socket] = []
    failed: list[BaseException] = []

    def serve() -> None:
        try:
            found.append(secured(wire.ends[0], KEY, is_server=True))
        except (StateError, OSError, EOFError) as error:
            failed.append(error)

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        client = secured(wire.ends[1], client_key, is_server=False)
    finally:
        serving.join(PATIENCE_S)
    if failed:
        client.close()
        raise failed[0]
    return found[0], client


def test_nobody_in_between_sees_what_is_said(wire: Wire) -> None:
    server, client = both(wire)
    with server, client:
        client.sendall(SECRET)
        assert server.recv(1_000) == SECRET
        server.sendall(SECRET[::-1])
        assert client.recv(1_000) == SECRET[::-1]
    assert len(wire.seen) > 1_000
    assert SECRET not in wire.seen
    assert SECRET[::-1] not in wire.seen


def test_what_is_changed_on_the_way_is_noticed(wire: Wire) -> None:
    server, client = both(wire)
    with server, client:
        wire.is_changing = True
        client.sendall(SECRET)
        with pytest.raises(OSError, match=r"(?i)mac|decrypt"):
            server.recv(1_000)


def test_another_key_is_refused_by_both_sides(wire: Wire) -> None:
    with pytest.raises(StateError, match="does not know the key of this application"):
        both(wire, OTHER_KEY)


def test_text_in_clear_is_refused(wire: Wire) -> None:
    wire.ends[1].sendall(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(StateError, match="does not know the key"):
        secured(wire.ends[0], KEY, is_server=True)


def test_what_was_received_already_counts_as_readable(wire: Wire) -> None:
    server, client = both(wire)
    with server, client:
        assert not is_readable(server, 0)
        client.sendall(SECRET)
        assert is_readable(server, PATIENCE_S)
        assert server.recv(1) == SECRET[:1]
        assert is_readable(server, 0)
