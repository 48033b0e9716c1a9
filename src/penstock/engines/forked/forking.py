"""The process that forks slots, as the driver sees it. It imports as much as the driver, so it can be started ahead of that."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.engines.output import LineReader
from penstock.engines.sockets import for_tables

Heard = Callable[[str], None]

_STOP_S = 5.0
ALLOCATION = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "1048576"}
"""How slots allocate memory: tables of an epoch go back to the system when it ends. Arrow's own pool keeps them."""

_ahead: dict[Heard, ForkingProcess] = {}


def start_ahead(heard: Heard) -> None:
    """Start a process for the next slots that need one. If there is none, the process ends with the driver."""
    if heard not in _ahead:
        _ahead[heard] = ForkingProcess(heard)


def started(heard: Heard) -> ForkingProcess:
    """Return the process that was started ahead, or a new one."""
    return _ahead.pop(heard, None) or ForkingProcess(heard)


class ForkingProcess:
    """The process, and the socket over which it gets requests. `heard` is called with every line that it or a slot writes."""

    def __init__(self, heard: Heard) -> None:
        own, other = socket_pair()
        self.control: socket.socket = own
        with LineReader(heard) as output, other:
            modules = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
            environment = {**ALLOCATION, **os.environ, "PYTHONPATH": modules}
            self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "penstock.engines.forked.process", str(other.fileno())],
                env=environment,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def close(self) -> None:
        """End the process, and with it all slots; a thread that waits for an answer gets none."""
        with suppress(OSError):  # it has closed its end, or this one is closed
            self.control.shutdown(socket.SHUT_RDWR)
        self.control.close()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets for large tables."""
    own, other = socket.socketpair()
    return for_tables(own), for_tables(other)
