"""The lanes of an application on hosts of their own, each with a lane server in this process, and the driver's server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from penstock.epochs.committed_lanes import RemoteLanes
from penstock.epochs.program import Program
from penstock.epochs.state_directory import StateDirectory
from penstock.state import Engine, memory_engine
from penstock.state.remote.client import Address
from penstock.state.remote.protocol import Located
from penstock.state.remote.server import LaneServer, Server, Serving
from penstock.state.remote.visits import DriverVisit

KEY = b"k" * 32
ADDRESS = "127.0.0.1"
HOSTS = 3


@contextmanager
def running(server: Server) -> Iterator[Address]:
    """Run a server in a thread; return its address."""
    threading.Thread(target=server.run, daemon=True).start()
    try:
        yield ADDRESS, server.port
    finally:
        server.close()


@contextmanager
def moved_to_hosts(program: Program) -> Iterator[list[Address]]:
    """Move the files of lanes to hosts; return the address of each lane's server. No lane can be written any more."""
    home = StateDirectory(program.directory, program.application_id)
    with ExitStack() as opened:
        addresses = []
        for number in range(HOSTS):
            directory = Path(program.directory) / f"host-{number}"
            directory.mkdir()
            for lane in range(number, program.lanes, HOSTS):
                found = home.lane_directory(lane, program.lanes)
                if found.exists():
                    found.rename(directory / found.name)
            serving = Serving(str(directory), program.engine.value, ADDRESS, KEY, os.getpid())
            addresses.append(opened.enter_context(running(LaneServer(serving))))
        yield [addresses[lane % HOSTS] for lane in range(program.lanes)]


@contextmanager
def remote_lanes(
    program: Program, located: Callable[[], Located], globals_: Callable[[], Engine] = memory_engine
) -> Iterator[RemoteLanes]:
    """Return lanes that are found through a driver."""
    with running(Server(ADDRESS, KEY, partial(DriverVisit, located, globals_))) as driver:
        yield RemoteLanes(program=replace(program, is_spread=True, server_key=KEY), driver=driver)
