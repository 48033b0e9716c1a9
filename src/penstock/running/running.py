"""`Running`: an application in this process, from its start to its end."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType

from penstock.config import Config
from penstock.errors import PenstockError
from penstock.handlers import ErrorHandlers
from penstock.running.starting import Started, Starting, Until
from penstock.running.states import Listener, State, StateMachine
from penstock.spark.failures import translated
from penstock.topology import Topology

_log = logging.getLogger(__name__)
_TICK_S = 0.05


class Running:
    """A started application. As a context manager it is closed at the end of the block.

    Epochs run in threads of Spark's; `wait` waits for the end, and raises what brought it about.
    """

    def __init__(
        self,
        application_id: str,
        topology: Topology,
        handlers: ErrorHandlers,
        config: Config,
        until: Until = None,
        listeners: tuple[Listener, ...] = (),
    ) -> None:
        self._application_id = application_id
        self._states = StateMachine(listeners)
        self._starting = Starting(application_id, topology, handlers, config)
        self._until = until
        self._started: Started | None = None
        self._failure: PenstockError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"penstock-{application_id}", daemon=True)

    @property
    def state(self) -> State:
        """What the application is doing."""
        return self._states.state

    @property
    def epoch(self) -> int:
        """The last epoch that is committed, -1 for none."""
        return -1 if self._started is None else self._started.epochs.progress.epoch

    def start(self) -> Running:
        """Start; returns at once."""
        self._thread.start()
        return self

    def wait_until_running(self, timeout_s: float | None = None) -> bool:
        """Wait until records are being processed; whether that came in time. Raises if the start has failed."""
        ended = (State.NOT_RUNNING, State.ERROR)
        reached = self._states.wait_for(State.RUNNING, *ended, timeout_s=timeout_s)
        if self.state is State.ERROR:
            self.wait()
        return reached

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; whether it has come. Raises what ended the application, unless that was asked for."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """Ask for the end: the epoch in hand is committed first. Returns at once."""
        self._stop.set()

    def close(self) -> None:
        """Stop, and wait for the end."""
        self.stop()
        self._thread.join()

    def __enter__(self) -> Running:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self._states.enter(State.REBALANCING)
            self._started = self._starting.run(self._until)
            self._process(self._started)
            self._states.enter(State.PENDING_SHUTDOWN)
            self._started.epochs.stop()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._failure = translated(error)
            if self._failure is not error:
                self._failure.__cause__ = error
            self._states.enter(State.PENDING_ERROR)
        for close in reversed(self._starting.closers):
            try:
                close()
            except Exception:  # noqa: BLE001 - the others are to be closed all the same
                _log.exception("something could not be closed")
        self._states.enter(State.NOT_RUNNING if self._failure is None else State.ERROR)

    def _process(self, started: Started) -> None:
        """Let epochs come until the end is asked for or reached."""
        started.stream.start()
        self._states.enter(State.RUNNING)
        checked = time.monotonic()
        while not self._stop.is_set() and not started.epochs.is_done:
            if started.stream.wait(_TICK_S):
                raise PenstockError("Spark's query has ended without being asked to; start again")
            started.epochs.tick()
            if time.monotonic() - checked > 1:
                checked = time.monotonic()
                started.epochs.while_idle(started.publisher.check)
