"""The processes behind a pool: `python -m penstock.workers.process FD` forks workers, and each worker serves requests.

The forking process imports what workers need and nothing of the user's, so that a new worker is ready in milliseconds and shares
its memory with the others. A worker ends when the driver closes its socket; if the driver dies, the forking process kills all
workers, so that none of them holds a lane's store. Signals that end an application are for the driver: workers ignore them,
because the driver still needs them for the current epoch.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

import cloudpickle
import msgspec
import pyarrow as pa

from penstock.deferred_pandas import defer_pandas
from penstock.epochs.program import Program
from penstock.errors import PenstockError
from penstock.workers.forking import socket_pair
from penstock.workers.messages import Kind, receive, send, send_rows, unpacked
from penstock.workers.requests import RestoreLane

COLLECT_EVERY = 100_000
"""New objects between two garbage collections. A lane creates and drops hundreds of thousands per epoch, and none in cycles:
with Python's default of 700, a quarter of its time was spent on collections."""


def main(descriptor: int) -> None:
    """Fork a worker whenever the driver requests one; when the driver closes its socket or dies, kill those that are left."""
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

    @cache
    def prepared() -> Program:
        loaded: tuple[Program, Callable[[], None]] = cloudpickle.loads(
            packed_program
        )  # our own driver's, over an inherited socket
        program, prepare = loaded
        prepare()
        return program

    try:
        while True:
            _answer(driver, prepared)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except BaseException:  # noqa: BLE001 - the driver sees only that the worker has ended
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)


def _answer(driver: socket.socket, prepared: Callable[[], Program]) -> None:
    """Answer one request: an optional table, then what to do with it. The first one prepares the worker."""
    _, table = receive(driver)
    _, content = receive(driver)
    try:
        program = prepared()
        request: Any = cloudpickle.loads(content)  # the driver's, as above
        if isinstance(request, RestoreLane):
            answer = request.restore(program, lambda left: send(driver, Kind.PROGRESS, msgspec.msgpack.encode(left)))
            send(driver, Kind.VALUE, answer)
        else:
            rows = list(request.run(program, unpacked(table)))
            del table
            send_rows(driver, rows)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - raised in the driver; a user's function may call `sys.exit`
        send(driver, Kind.ERROR, msgspec.msgpack.encode(_described(error)))


def _described(error: BaseException) -> tuple[str, str, str]:
    """Return the error's type, if it is one of ours, its text, and where it was raised."""
    kind = type(error).__name__ if isinstance(error, PenstockError) else ""
    return kind, str(error), "".join(traceback.format_exception(error))


if __name__ == "__main__":
    main(int(sys.argv[1]))
