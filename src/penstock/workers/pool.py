"""`WorkerPool`: the driver's side of its worker processes. A worker that has died is replaced; its request fails."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa

from penstock import errors
from penstock.epochs.packing import packed
from penstock.epochs.program import Program
from penstock.epochs.restore import Restored
from penstock.errors import PenstockError, ProcessingError
from penstock.workers.forking import ForkingProcess, started
from penstock.workers.messages import Kind, receive, send, send_rows, unpacked
from penstock.workers.requests import RestoreLane, RowsRequest

Batches = Sequence[pa.RecordBatch]
OnProgress = Callable[[int], None]

_LONGEST = 4_000


class WorkerLostError(PenstockError):
    """A worker process has ended in the middle of a request."""


class TaskFailedError(PenstockError):
    """A request has failed for a reason that Penstock does not know, and that may not come again."""


class LateError(PenstockError):
    """A request has taken longer than it may."""


class WorkerPool:
    """`size` worker processes, all forked by one process that has imported everything they need.

    `prepare` is called once in every worker. `heard` is called with every line that workers write.
    """

    def __init__(self, program: Program, prepare: Callable[[], None], size: int, heard: Callable[[str], None]) -> None:
        self.size = size
        self._program = packed(program, (program, prepare))
        self._heard = heard
        self._forking: ForkingProcess | None = None
        self._forking_lock = threading.Lock()
        self._workers: list[_Worker | None] = [None] * size
        self._threads = ThreadPoolExecutor(size, "penstock-worker")

    def start(self) -> None:
        """Start the forking process, without waiting until it is ready."""
        self._forking = started(self._heard)
        send(self._forking.control, Kind.PROGRAM, self._program)

    def run(self, requests: Sequence[tuple[RowsRequest, Batches]], patience_s: float) -> list[list[pa.RecordBatch]]:
        """Run requests in parallel, each on the worker of its position; return the rows of each.

        If one fails, the others are completed first. Raises `WorkerLostError`, `TaskFailedError`, or `LateError` after
        `patience_s`.
        """
        deadline = time.monotonic() + patience_s
        futures = [
            self._threads.submit(self._run, position % self.size, request, batches, deadline)
            for position, (request, batches) in enumerate(requests)
        ]
        failures = [error for future in futures if (error := future.exception()) is not None]
        if failures:
            raise next((error for error in failures if not isinstance(error, (WorkerLostError, TaskFailedError))), failures[0])
        return [future.result() for future in futures]

    def restore(self, requests: Sequence[RestoreLane], on_progress: Callable[[int, int], None]) -> list[Restored]:
        """Restore lanes in parallel; `on_progress` is called with a lane and the number of offsets that it has left to read."""
        futures = [
            self._threads.submit(self._restore, position % self.size, request, on_progress)
            for position, request in enumerate(requests)
        ]
        return [future.result() for future in futures]

    def close(self) -> None:
        """End all workers, even those with a running request, and the forking process."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            if worker is not None:
                worker.close()
        if self._forking is not None:
            self._forking.close()

    def _restore(self, position: int, request: RestoreLane, on_progress: Callable[[int, int], None]) -> Restored:
        """Restore a lane; if the worker dies, once more without the local store, which may have killed it."""
        try:
            return self._restored(position, request, on_progress)
        except WorkerLostError:
            return self._restored(position, replace(request, is_retry=True), on_progress)

    def _restored(self, position: int, request: RestoreLane, on_progress: Callable[[int, int], None]) -> Restored:
        content = self._answer(position, request, (), None, lambda left: on_progress(request.lane, left))
        return Restored(*msgspec.msgpack.decode(content))

    def _run(self, position: int, request: RowsRequest, batches: Batches, deadline: float) -> list[pa.RecordBatch]:
        return unpacked(self._answer(position, request, batches, deadline, _ignore))

    def _answer(
        self,
        position: int,
        request: RowsRequest | RestoreLane,
        batches: Batches,
        deadline: float | None,
        on_progress: OnProgress,
    ) -> pa.Buffer:
        """Return the answer to a request, or raise the error that the worker describes."""
        worker = self._worker(position)
        with worker.lock:
            try:
                kind, content = worker.ask(request, batches, deadline, on_progress)
            except (EOFError, OSError) as error:
                self._workers[position] = None
                worker.close()
                raise WorkerLostError(f"A worker process has ended unexpectedly ({error}).") from error
            except LateError:
                self._workers[position] = None
                worker.kill()
                raise
        if kind is Kind.ERROR:
            raise _raised(*msgspec.msgpack.decode(content))
        return content

    def _worker(self, position: int) -> _Worker:
        with self._forking_lock:
            worker = self._workers[position]
            if worker is None:
                worker = self._workers[position] = self._forked()
            return worker

    def _forked(self) -> _Worker:
        """Fork a worker; if the forking process has ended, with a new one."""
        forking = self._forking
        assert forking is not None
        descriptors: Sequence[int] = ()
        with suppress(OSError):
            send(forking.control, Kind.FORK, b"")
            message, descriptors, _, _ = socket.recv_fds(forking.control, 8, 1)
        if not descriptors:
            forking.close()
            self.start()
            raise WorkerLostError("The process that starts workers has ended unexpectedly.")
        return _Worker(int.from_bytes(message, "big"), socket.socket(fileno=descriptors[0]))


class _Worker:
    """One worker process and the socket to it."""

    def __init__(self, process: int, connection: socket.socket) -> None:
        self.lock = threading.Lock()
        self._process = process
        self._socket = connection

    def ask(self, request: Any, batches: Batches, deadline: float | None, on_progress: OnProgress) -> tuple[Kind, pa.Buffer]:
        """Send a request and wait for its answer."""
        send_rows(self._socket, batches)
        send(self._socket, Kind.REQUEST, cloudpickle.dumps(request))
        while True:
            if deadline is not None and not _is_readable(self._socket, deadline):
                raise LateError("A worker process has not answered in time.")
            kind, content = receive(self._socket)
            if kind is not Kind.PROGRESS:
                return kind, content
            on_progress(msgspec.msgpack.decode(content))

    def close(self) -> None:
        """Close the socket, which ends the process, if it is not busy."""
        self._socket.close()

    def kill(self) -> None:
        """End the process at once."""
        self._socket.close()
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)


def _is_readable(connection: socket.socket, deadline: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1_000))


def _ignore(left: int) -> None:
    """Do nothing: only a restore reports progress."""


def _raised(kind: str, text: str, trace: str) -> PenstockError:
    """Return the error that a worker has raised."""
    if kind:
        return getattr(errors, kind, ProcessingError)(text)
    return TaskFailedError(f"Unexpected failure: {trace[-_LONGEST:]}")
