"""Strangers keep nobody out of a listener, and who knows the key is never one too many."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from penstock.state import SpaceBatch, memory_engine
from penstock.state.remote.client import Address, LaneClient, RemoteEngine
from penstock.state.remote.hand_shakes import HandShakes
from penstock.state.remote.secured import secured
from penstock.state.remote.server import Server
from penstock.state.remote.visits import Visit
from tests.unit.epochs.served import ADDRESS, KEY, running
from tests.unit.state.remote.strangers import dripping

PATIENCE_S = 20.0


@pytest.fixture
def address() -> Iterator[Address]:
    """That of a server with a store."""
    engine = memory_engine()
    engine.write([SpaceBatch("shared", [b"k"], [b"v"])])
    with running(Server(ADDRESS, KEY, lambda: Visit(lambda lane: engine.snapshot()))) as found:
        yield found


def read(client: LaneClient) -> None:
    with closing(RemoteEngine(client, 0)) as remote:
        assert remote.get("shared", b"k") == b"v"


@pytest.mark.security(27)
def test_strangers_who_send_a_byte_now_and_then_keep_nobody_out(address: Address) -> None:
    with dripping(address, 300):
        for _ in range(10):
            with closing(LaneClient(address, KEY)) as client:
                read(client)


def test_each_slot_of_a_large_cluster_keeps_its_connection(address: Address) -> None:
    with ExitStack() as opened:
        clients = [opened.enter_context(closing(LaneClient(address, KEY))) for _ in range(220)]
        for _ in range(2):
            for client in clients:
                read(client)


@pytest.mark.security(27)
def test_a_hand_shake_has_a_limit_as_a_whole() -> None:
    own, stranger = socket.socketpair()
    own.settimeout(0.5)
    ended = threading.Event()

    def drip() -> None:
        for byte in b"\x16\x03\x01\x02\x00" + bytes(200):  # of a client's greeting, as it begins
            if ended.wait(0.1):
                return
            stranger.send(bytes([byte]))

    thread = threading.Thread(target=drip)
    with stranger:
        thread.start()
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="has not proved in time that it knows the key"):
            secured(own, KEY, is_server=True)
        assert time.monotonic() - began < PATIENCE_S / 2
        ended.set()
        thread.join(PATIENCE_S)


def test_if_there_are_too_many_the_oldest_is_closed() -> None:
    hand_shakes = HandShakes(2)
    pairs = [socket.socketpair() for _ in range(4)]
    ends = [hand_shakes.begin(own) for own, _ in pairs[:2]]
    ends[0]()  # it knows the key
    ends += [hand_shakes.begin(own) for own, _ in pairs[2:]]
    for (own, other), is_closed in zip(pairs, [False, True, False, False], strict=True):
        own.settimeout(0.1)
        if is_closed:
            assert own.recv(1) == b""
        else:
            with pytest.raises(TimeoutError):
                own.recv(1)
        own.close()
        other.close()
    for end in ends:
        end()


def test_too_many_open_files_end_one_connection_and_not_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(connection: socket.socket) -> socket.socket:
        raise OSError("Too many open files")

    own, other = socket.socketpair()
    monkeypatch.setattr(socket.socket, "dup", fails)
    HandShakes().begin(own)()
    with other:
        assert other.recv(1) == b""
