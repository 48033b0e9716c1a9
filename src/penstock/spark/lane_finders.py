"""How tasks that read stores find the lanes, and the epoch that was committed last when they begin.

Lanes do not know that epoch, because they may be ahead. On one machine the driver writes it to a file; on a cluster, which shares
no files, tasks ask the driver.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from penstock.epochs.committed_lanes import CommittedLanes, LocalLanes, RemoteLanes
from penstock.epochs.program import Program
from penstock.epochs.state_directory import StateDirectory
from penstock.state import Engine
from penstock.state.remote.protocol import Located
from penstock.state.remote.server import Server
from penstock.state.remote.visits import DriverVisit

_BYTES = 8

FindLanes = Callable[[Program], CommittedLanes]
"""Called in a task, with the program as it is there; can be pickled."""


class LaneFinder(Protocol):
    """Lets tasks find lanes, from the first call of `opened` on."""

    def opened(self) -> FindLanes:
        """Return what tasks call to find the lanes."""

    def after_commit(self) -> None:
        """Tell tasks what is committed, unless they ask."""

    def close(self) -> None:
        """Stop; tasks can no longer find lanes."""


class LanesHere:
    """Lanes of this machine; `committed` returns the epoch of the last commit, which a file tells to tasks."""

    def __init__(self, program: Program, committed: Callable[[], int]) -> None:
        self._committed = committed
        self._note = StateDirectory(program.directory, program.application_id).root / "committed"
        self._file: int | None = None
        self._lock = threading.Lock()

    def opened(self) -> FindLanes:
        """See `LaneFinder.opened`."""
        with self._lock:
            if self._file is None:
                self._file = os.open(self._note, os.O_WRONLY | os.O_CREAT, 0o600)
        self.after_commit()
        return partial(lanes_here, self._note)

    def after_commit(self) -> None:
        """See `LaneFinder.after_commit`."""
        with self._lock:  # so that the last write is the newest
            if self._file is not None:
                os.pwrite(self._file, self._committed().to_bytes(_BYTES, "big", signed=True), 0)

    def close(self) -> None:
        """See `LaneFinder.close`."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None


def lanes_here(note: Path, program: Program) -> LocalLanes:
    """Return the lanes of this machine, as of the epoch in a file."""
    return LocalLanes(program=program, committed=lambda: int.from_bytes(note.read_bytes(), "big", signed=True))


class LanesOnHosts:
    """Lanes of a cluster. `located` returns what is committed and where lanes are, `globals_` a snapshot of the global tables.

    `host` is the address of the driver, at which it listens.
    """

    def __init__(self, host: str, program: Program, located: Callable[[], Located], globals_: Callable[[], Engine]) -> None:
        self._host = host
        self._key = program.server_key
        self._ports = program.ports
        self._visit = partial(DriverVisit, located, globals_)
        self._server: Server | None = None
        self._lock = threading.Lock()

    def opened(self) -> FindLanes:
        """See `LaneFinder.opened`."""
        with self._lock:
            if self._server is None:
                self._server = Server(self._host, self._key, self._visit, self._ports)
                threading.Thread(target=self._server.run, name="penstock-lane-finder", daemon=True).start()
            return partial(lanes_on_hosts, (self._host, self._server.port))

    def after_commit(self) -> None:
        """Do nothing: tasks ask."""

    def close(self) -> None:
        """See `LaneFinder.close`."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None


def lanes_on_hosts(driver: tuple[str, int], program: Program) -> RemoteLanes:
    """Return the lanes of a cluster, which the server of the driver knows."""
    return RemoteLanes(program=program, driver=driver)
