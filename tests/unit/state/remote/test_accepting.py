"""A listener goes on after errors of `accept`, until it is closed."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from contextlib import closing
from typing import Any

import pytest

from penstock.engines.connections import connected
from penstock.engines.exchange import Exchange, Way
from penstock.engines.messages import Kind, receive
from penstock.spark.registration import Registration
from penstock.state import memory_engine
from penstock.state.remote.accepting import connections_to
from penstock.state.remote.client import LaneClient, RemoteEngine
from penstock.state.remote.server import Server
from penstock.state.remote.visits import Visit
from tests.unit.epochs.served import ADDRESS, KEY, running

PATIENCE_S = 10.0


@pytest.fixture(autouse=True)
def _too_many_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, errors = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")] * 3

    def failing(listener: socket.socket) -> Any:
        if errors:
            raise errors.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)


def test_a_lane_server_goes_on() -> None:
    server = Server(ADDRESS, KEY, lambda: Visit(lambda lane: memory_engine()))
    with running(server) as address, closing(LaneClient(address, KEY, PATIENCE_S)) as client:
        assert RemoteEngine(client, 0).get("space", b"k") is None


def test_an_inbox_goes_on() -> None:
    one, other = Exchange(ADDRESS, KEY), Exchange(ADDRESS, KEY)
    with closing(one), closing(other):
        assert one.hand_over(Way(0, (other.inbox.address,)), 1, 0, {0: []}, most_bytes=0)


def test_the_registration_of_slots_goes_on() -> None:
    with closing(Registration(b"", ADDRESS)) as registration, closing(connected(registration.address, registration.key)) as task:
        task.settimeout(PATIENCE_S)
        assert receive(task)[0] is Kind.HELLO


def test_it_says_so_once_and_ends_when_it_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    listener = socket.create_server((ADDRESS, 0))
    came = threading.Event()

    def accept() -> None:
        for connection in connections_to(listener):
            connection.close()
            came.set()

    thread = threading.Thread(target=accept)
    with caplog.at_level(logging.WARNING):
        thread.start()
        with socket.create_connection(listener.getsockname()):
            came.wait(PATIENCE_S)
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert came.is_set()
    assert caplog.text.count("Too many open files") == 1
