"""Processes that are forked where what they need, such as lane servers, is imported already; otherwise each takes a second."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from penstock.epochs.program import Program
from penstock.epochs.state_directory import StateDirectory
from penstock.state.remote.server import LaneServer, Serving

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [__name__, "penstock.epochs.state_directory", "penstock.state.remote.server", "tests.unit.spark.without_java"]
)


class ForkedServers:
    """The lane servers of an application, one for each directory and start; see `server_of`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._running: dict[tuple[str, str], tuple[BaseProcess, int]] = {}

    def port_of(self, program: Program) -> int:
        """Return the port of the server for the directory of a program, which is started if need be."""
        key = program.directory, program.incarnation
        if key not in self._running:
            self._end([known for known in self._running if known[0] == program.directory])
            lanes = StateDirectory(program.directory, program.application_id).lane_directory(0, program.lanes).parent
            serving = Serving(str(lanes), program.engine.value, self._address, program.server_key, os.getpid())
            here, there = PROCESSES.Pipe()
            process = PROCESSES.Process(target=_serve, args=(serving, there), daemon=True)
            process.start()
            self._running[key] = process, here.recv()
            here.close()
            there.close()
        return self._running[key][1]

    def close(self) -> None:
        """End all servers."""
        self._end(list(self._running))

    def _end(self, which: list[tuple[str, str]]) -> None:
        for key in which:
            process, _ = self._running.pop(key)
            process.terminate()
            process.join()
            process.close()


def _serve(serving: Serving, port: Connection) -> None:
    server = LaneServer(serving)
    port.send(server.port)
    port.close()
    server.run()
