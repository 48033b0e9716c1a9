"""The processes behind forked slots: `python -m penstock.engines.forked.process FD` forks them, and each serves requests.

The forking process imports what slots need and nothing of the user's, so that a new one is ready in milliseconds and shares its
memory with the others. A slot ends when the driver closes its socket; if the driver dies, the forking process kills all of them,
so that none holds a lane's store. Signals that end an application are for the driver: slots ignore them, because the driver still
needs them for the current epoch.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from typing import NoReturn

import pyarrow as pa

from penstock.deferred_pandas import defer_pandas
from penstock.engines.forked.forking import socket_pair
from penstock.engines.messages import receive
from penstock.engines.serving import COLLECT_EVERY, serve


def main(descriptor: int) -> None:
    """Fork a slot whenever the driver requests one; when the driver closes its socket or dies, kill those that are left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    defer_pandas()
    gc.set_threshold(COLLECT_EVERY)
    gc.freeze()  # what was imported is never collected, nor copied to workers by a collection
    workers: list[int] = []
    try:
        _, packed_program = receive(control)
        while True:
            receive(control)
            workers = [worker for worker in workers if not _has_ended(worker)]
            workers.append(_fork(control, packed_program))
    except (EOFError, ConnectionError):
        for worker in workers:
            os.kill(worker, signal.SIGKILL)


def _has_ended(worker: int) -> bool:
    """Whether a worker has ended. Only this call frees its number, so that no other process can have it before."""
    return os.waitpid(worker, os.WNOHANG)[0] == worker


def _fork(control: socket.socket, packed_program: pa.Buffer) -> int:
    driver, own = socket_pair()
    child = os.fork()
    if not child:
        control.close()
        driver.close()
        _serve(own, packed_program)
    own.close()
    with driver:
        socket.send_fds(control, [child.to_bytes(8, "big")], [driver.fileno()])
    return child


def _serve(driver: socket.socket, packed_program: pa.Buffer) -> NoReturn:
    """Serve requests until the driver closes the socket; then end without the cleanup of the forking process."""
    status = 0
    try:
        serve(driver, packed_program)
    except BaseException:  # the driver sees only that the slot has ended
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main(int(sys.argv[1]))
