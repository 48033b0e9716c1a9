"""The lanes of an application as of its last commit, on this machine or on other hosts.

For tasks that are not part of an epoch, and so do not know which one was committed last.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from penstock.epochs.program import Program
from penstock.epochs.state_directory import StateDirectory, lane_as_of, open_globals
from penstock.state import LaneState, memory_engine
from penstock.state.remote.client import Address, LaneClients
from penstock.state.remote.protocol import GLOBALS, Locate, decode_located


class CommittedLanes(Protocol):
    """Where lanes are read. What it opens stays open as long as `opened`."""

    def open(self, opened: ExitStack) -> list[LaneState]:
        """Open all lanes, each as of the last commit; raises `StateError` if one has gone on to later ones meanwhile."""

    def open_globals(self, opened: ExitStack) -> LaneState:
        """Open the global tables, which follow their topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLanes:
    """Lanes whose files are on this machine; `committed` returns the epoch of the last commit."""

    program: Program
    committed: Callable[[], int]

    def open(self, opened: ExitStack) -> list[LaneState]:
        """See `CommittedLanes.open`."""
        program, epoch = self.program, self.committed()
        home = StateDirectory(program.directory, program.application_id)
        directories = [home.lane_directory(lane, program.lanes) for lane in range(program.lanes)]
        return [opened.enter_context(lane_as_of(program, epoch, directory)) for directory in directories]

    def open_globals(self, opened: ExitStack) -> LaneState:
        """See `CommittedLanes.open_globals`."""
        return opened.enter_context(open_globals(self.program)) or LaneState(memory_engine())


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLanes:
    """Lanes that are read through the servers of their hosts. `driver` is the server that knows what is committed, and where."""

    program: Program
    driver: Address

    def open(self, opened: ExitStack) -> list[LaneState]:
        """See `CommittedLanes.open`; all snapshots are taken before the first of them is read."""
        clients = self._clients(opened)
        located = clients.to(self.driver).ask(Locate(), decode_located)
        if located.epoch < 0:
            return [LaneState(memory_engine()) for _ in range(self.program.lanes)]  # nothing was written yet
        engines = [clients.snapshot(address, lane) for lane, address in enumerate(located.servers)]
        return [LaneState(engine).read_committed(located.epoch) for engine in engines]

    def open_globals(self, opened: ExitStack) -> LaneState:
        """See `CommittedLanes.open_globals`; the driver has read them furthest."""
        state = LaneState(self._clients(opened).snapshot(self.driver, GLOBALS))
        return state.read_committed(state.epoch)

    def _clients(self, opened: ExitStack) -> LaneClients:
        """Return connections of their own: with them, all snapshots are closed."""
        clients = LaneClients(self.program.server_key)
        opened.callback(clients.close)
        return clients
