"""The driver tells those who know the key what is committed and where lanes are, and lets them read its global tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from penstock.errors import LaneMovedError
from penstock.state import SpaceBatch, memory_engine
from penstock.state.remote.client import Address, LaneClient, RemoteEngine
from penstock.state.remote.protocol import GLOBALS, Copy, Locate, Located, Part, Publish, Request, decode_located, decode_number
from penstock.state.remote.server import LaneServer, Server, Serving
from penstock.state.remote.visits import DriverVisit
from tests.unit.epochs.served import ADDRESS, KEY, running

WHERE = Located(41, [("one.example.com", 7001), ("two.example.com", 7002)])


@pytest.fixture
def driver() -> Iterator[Address]:
    tables = memory_engine()
    tables.write([SpaceBatch("space", [b"a", b"b"], [b"1", b"2"])])
    with running(Server(ADDRESS, KEY, partial(DriverVisit, lambda: WHERE, tables.snapshot))) as address:
        yield address


@pytest.fixture
def client(driver: Address) -> Iterator[LaneClient]:
    with closing(LaneClient(driver, KEY)) as client:
        yield client


def test_it_tells_what_is_committed_and_where_lanes_are(client: LaneClient) -> None:
    assert client.ask(Locate(), decode_located) == WHERE


def test_global_tables_are_read_like_a_lane(client: LaneClient) -> None:
    engine = RemoteEngine(client, GLOBALS)
    assert list(engine.scan("space", b"b", None)) == [(b"b", b"2")]
    assert (engine.get("space", b"a"), engine.count("space")) == (b"1", 2)
    engine.close()


@pytest.mark.security(26)
@pytest.mark.parametrize("request_", [Copy(1), Part(1, 0), Publish(0, "copies", "app", 8, 2)], ids=repr)
def test_it_copies_nothing(client: LaneClient, request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RemoteEngine(client, GLOBALS)
    with pytest.raises(LaneMovedError, match=f"{type(request_).__name__} is no request to this server"):
        client.ask(request_, decode_number)
    assert not list(tmp_path.iterdir())


@pytest.mark.security(26)
def test_who_does_not_know_the_key_learns_nothing(driver: Address) -> None:
    with closing(LaneClient(driver, b"o" * 32)) as stranger, pytest.raises(LaneMovedError, match="does not answer"):
        stranger.ask(Locate(), decode_located)


def test_it_has_no_lanes(client: LaneClient) -> None:
    with pytest.raises(LaneMovedError, match="Lane 0 is not on the driver"):
        RemoteEngine(client, 0)


def test_a_host_does_not_know_where_lanes_are(tmp_path: Path) -> None:
    serving = Serving(str(tmp_path), "lmdb", ADDRESS, KEY, 0)
    with running(LaneServer(serving)) as address, closing(LaneClient(address, KEY)) as client:
        with pytest.raises(LaneMovedError, match="Locate is no request to this server"):
            client.ask(Locate(), decode_located)
        with pytest.raises(LaneMovedError, match="Lane -1 is not on this host"):
            RemoteEngine(client, GLOBALS)


def test_a_server_that_is_closed_accepts_nobody() -> None:
    with running(Server(ADDRESS, KEY, partial(DriverVisit, lambda: WHERE, memory_engine))) as address:
        pass
    with closing(LaneClient(address, KEY)) as client, pytest.raises(LaneMovedError, match="does not answer"):
        client.ask(Locate(), decode_located)
