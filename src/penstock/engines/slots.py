"""`Slots`: the processes in which lanes run, as the driver sees them, each at the other end of a connection."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Protocol

import cloudpickle
import pyarrow as pa

from penstock.engines.messages import Kind, decode_located, raised, receive, send, send_rows
from penstock.engines.port import Batches, LateError, SlotLostError
from penstock.engines.watching import Wait, Watch


class Slot:
    """One slot: it answers one request at a time. `process` is its number on its host, which may be this one.

    `watch` is the watch over the slots of its host.
    """

    def __init__(
        self,
        connection: socket.socket,
        host: str,
        process: int,
        watch: Watch,
        *,
        is_here: bool = True,
    ) -> None:
        self.host = host
        self.process = process
        self.is_lost: bool = False
        """Whether its connection was closed, by either side."""
        self.is_given_up: bool = False
        """Whether it was closed because it did not answer: the process may still be there."""
        self._is_here = is_here
        self._watch = watch
        self._socket = connection
        self._lock = threading.Lock()

    def ask(
        self,
        request: Any,
        batches: Batches = (),
        deadline: float = inf,
        on_progress: Callable[[str, int | None], None] | None = None,
        patience_s: float = inf,
    ) -> pa.Buffer:
        """Send a request and return its answer, or raise the error that it describes.

        It is late at the deadline, or if it has not advanced for `patience_s`.
        """
        with self._lock:
            was_there = not self.is_lost
            try:
                kind, content = self._watched(request, batches, Wait(self._wake, deadline, patience_s), on_progress)
            except (EOFError, OSError) as error:
                self.close()
                text = f"A slot on {self.host} has ended unexpectedly ({error})."
                raise SlotLostError(text, by_request=was_there and not self.is_given_up) from error
            except LateError:
                self.kill()
                raise
        if kind is Kind.ERROR:
            raise raised(content)
        return content

    @property
    def is_idle(self) -> bool:
        """Whether it can be asked now."""
        return not self.is_lost and not self._lock.locked()

    def close(self) -> None:
        """Close the connection, which ends the slot, if it is not busy, and a wait for its answer."""
        self.is_lost = True
        self._wake()
        self._socket.close()

    def kill(self) -> None:
        """Close the connection, and end the process at once if it is on this host."""
        self.is_given_up = True
        self.close()
        if self._is_here:
            with suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)

    def _wake(self) -> None:
        """End what the asking thread waits for. That thread still has the connection: it is left to it to close it."""
        with suppress(OSError):
            # `close` alone would not end the wait; `shutdown` of a secured connection would let it go on without security.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _watched(
        self, request: Any, batches: Batches, wait: Wait, on_progress: Callable[[str, int | None], None] | None
    ) -> tuple[Kind, pa.Buffer]:
        self._watch.begin(wait)
        try:
            return self._answer(request, batches, wait, on_progress)
        finally:  # why the watch has ended the wait counts, whatever that did to it: an answer may even have come
            self._watch.end(wait)
            if wait.is_late:
                raise LateError(f"A slot on {self.host} has not answered in time.")
            if wait.is_in_vain:
                self.is_given_up = True
                raise EOFError("its host does not answer")

    def _answer(
        self, request: Any, batches: Batches, wait: Wait, on_progress: Callable[[str, int | None], None] | None
    ) -> tuple[Kind, pa.Buffer]:
        if self.is_lost:
            raise EOFError("it was lost before")
        send_rows(self._socket, batches)
        send(self._socket, Kind.REQUEST, cloudpickle.dumps(request))
        while True:
            kind, content = receive(self._socket)
            if kind is not Kind.PROGRESS:
                return kind, content
            wait.heard()
            if on_progress is not None:
                on_progress(*decode_located(content))


class Slots(Protocol):
    """Slots by position. One that is lost is replaced."""

    @property
    def size(self) -> int:
        """How many there are, or will be."""

    def start(self) -> None:
        """Start them, without waiting."""

    def slot(self, position: int) -> Slot:
        """Return a slot that can run any lane of this host; the one of the position if it is there. Waits for the first one."""

    def turn(self, epoch: int) -> bool:
        """Called before each epoch: slots may be renewed now, because none has a request. Return whether they were."""

    @property
    def hosts(self) -> Mapping[str, int]:
        """The number of slots that are there, by host."""

    def close(self) -> None:
        """End them, even those that are busy."""
