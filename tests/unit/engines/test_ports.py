"""With a range of ports, all listeners of a cluster take those of it, and say so if none is free."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config import Config
from penstock.engines.exchange import Exchange
from penstock.engines.many_hosts import ManyHosts
from penstock.errors import PenstockError
from penstock.handlers import ErrorHandlers
from penstock.history.truth import program_of
from penstock.spark.registration import Registration
from penstock.state import memory_engine
from penstock.state.remote.accepting import ANY_PORT, Ports, listener_at
from penstock.state.remote.protocol import Located
from penstock.state.remote.server import LaneServer, Server, Serving
from penstock.state.remote.visits import DriverVisit
from tests.unit.engines.programs import re_keyed

HOST, KEY = "127.0.0.1", b"k" * 32


@pytest.fixture
def ports() -> Iterator[Ports]:
    """Four ports in a row that are free, as far as can be known."""
    for first in range(20_000 + os.getpid() % 10_000, 60_000, 4):
        found = Ports(first, first + 3)
        try:
            with ExitStack() as opened:
                for port in range(found.first, found.last + 1):
                    opened.enter_context(closing(listener_at(HOST, Ports(port, port))))
        except PenstockError:
            continue
        yield found
        return


def test_every_listener_of_a_cluster_takes_one_of_them(ports: Ports, tmp_path: Path) -> None:
    serving = Serving.decode(Serving(str(tmp_path), "lmdb", HOST, KEY, os.getpid(), ports).encode())
    visit = partial(DriverVisit, lambda: Located(0, []), memory_engine)
    with (
        closing(Registration(b"", HOST, ports=ports)) as registration,
        closing(LaneServer(serving)) as lanes,
        closing(Server(HOST, KEY, visit, ports)) as driver,
        closing(Exchange(HOST, KEY, ports)) as slot,
    ):
        taken = [registration.address[1], lanes.port, driver.port, slot.inbox.address[1]]
        assert taken == list(range(ports.first, ports.last + 1))
        with pytest.raises(PenstockError, match=rf"^No port of {ports} \(cluster_ports\) is free at 127\.0\.0\.1\. .* wider"):
            listener_at(HOST, ports)


def test_an_address_of_another_host_is_another_error(ports: Ports) -> None:
    with pytest.raises(OSError, match="assign"):
        listener_at("192.0.2.200", ports)


def test_by_default_any_will_do() -> None:
    with closing(listener_at(HOST, ANY_PORT)) as one, closing(listener_at(HOST, ANY_PORT)) as other:
        assert one.getsockname()[1] != other.getsockname()[1]


def test_the_setting_reaches_the_program_and_with_it_slots_and_lane_servers() -> None:
    spark = {"master": "spark://m:7077", "spark.authenticate": "false"}
    config = Config(kafka={"bootstrap.servers": "b:1"}, spark=spark, lanes=2, cluster_ports="7100-7199")
    program = program_of("app", re_keyed(), ErrorHandlers(), config, "one")
    assert program.ports == config.ports == Ports(7100, 7199)
    none: Any = None
    slots: Any = SimpleNamespace(slot=None)
    engine, slot = ManyHosts(program, slots, 1.0, none, none), SimpleNamespace(host="a")
    requested: Any = engine._listen
    assert requested(slot).ports == Ports(7100, 7199)
    engine._carrier.close()
