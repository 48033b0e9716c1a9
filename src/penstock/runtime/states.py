"""The states of an application, as in Kafka Streams, and the listeners to their changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum

_log = logging.getLogger(__name__)


class State(Enum):
    """What an application is doing."""

    CREATED = "created"
    STANDBY = "standby"
    """Ready to start, and waiting until no other instance is active."""
    REBALANCING = "rebalancing"
    """Taking over from an earlier instance, and restoring."""
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending_shutdown"
    """Finishing the current epoch."""
    PENDING_ERROR = "pending_error"
    """Closing everything after a failure."""
    NOT_RUNNING = "not_running"
    ERROR = "error"


_FOLLOWING = {
    State.CREATED: {State.STANDBY, State.REBALANCING, State.PENDING_SHUTDOWN, State.PENDING_ERROR},
    State.STANDBY: {State.REBALANCING, State.PENDING_SHUTDOWN, State.PENDING_ERROR},
    State.REBALANCING: {State.STANDBY, State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR},
    State.RUNNING: {State.STANDBY, State.REBALANCING, State.PENDING_SHUTDOWN, State.PENDING_ERROR},
    State.PENDING_SHUTDOWN: {State.NOT_RUNNING, State.PENDING_ERROR},
    State.PENDING_ERROR: {State.ERROR},
    State.NOT_RUNNING: set(),
    State.ERROR: set(),
}

Listener = Callable[[State, State], None]
"""`listener(new, old)`, called in the thread that changes the state."""


class StateMachine:
    """The state of one application."""

    def __init__(self, listeners: tuple[Listener, ...] = ()) -> None:
        self._state = State.CREATED
        self._listeners = listeners
        self._changed = threading.Condition()

    @property
    def state(self) -> State:
        """The current state."""
        return self._state

    def enter(self, state: State) -> None:
        """Change the state and notify the listeners; the failure of a listener is only logged."""
        with self._changed:
            before = self._state
            if state not in _FOLLOWING[before]:
                raise RuntimeError(f"An application cannot change from {before.value} to {state.value}.")
            self._state = state
            self._changed.notify_all()
        for listener in self._listeners:
            try:
                listener(state, before)
            except Exception:  # noqa: BLE001 - a listener's failure must not end the application
                _log.exception("a state listener failed on %s", state.value)

    def wait_for(self, *states: State, timeout_s: float | None = None) -> bool:
        """Wait until one of these states is reached; return whether it was in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._state in states, timeout_s)
