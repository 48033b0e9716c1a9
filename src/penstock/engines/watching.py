"""`Watch`: looks each second at what the slots of a host are asked, and ends the waits of those that are late, or gone.

A thread that asks may be stuck in the middle of a message, its own or the answer, where it cannot look itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from math import inf

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0


class Wait:
    """A wait for a slot; `wake` ends it, with an error. It may last until `deadline`, and `patience_s` after it has advanced."""

    def __init__(self, wake: Callable[[], None], deadline: float, patience_s: float = inf) -> None:
        self.is_late: bool = False
        self.is_in_vain: bool = False
        """Whether it was ended because the host is gone."""
        self.wake = wake
        self._deadline = deadline
        self._patience_s = patience_s
        self._heard_at = time.monotonic()

    def heard(self) -> None:
        """Note that it has advanced."""
        self._heard_at = time.monotonic()

    @property
    def end(self) -> float:
        """When it is late."""
        return min(self._deadline, self._heard_at + self._patience_s)

    @property
    def silence_s(self) -> float:
        """How long nothing was heard."""
        return time.monotonic() - self._heard_at


class Watch:
    """The watch over the slots of one host; `is_there` says whether that answers.

    Its thread lives as long as there is something to wait for. Each host has its own: one that is slow to answer delays no other.
    """

    def __init__(self, is_there: Callable[[], bool] = lambda: True) -> None:
        self._is_there = is_there
        self._waits: set[Wait] = set()
        self._is_looking = False
        self._changing = threading.Lock()

    def begin(self, wait: Wait) -> None:
        """Watch over a wait."""
        with self._changing:
            self._waits.add(wait)
            if not self._is_looking:
                threading.Thread(target=self._look, name="penstock-watch", daemon=True).start()
                self._is_looking = True

    def end(self, wait: Wait) -> None:
        """Watch no longer; after this call, the wait is not woken."""
        with self._changing:
            self._waits.discard(wait)

    def _look(self) -> None:
        asked_at = time.monotonic()
        while self._sleeps():
            self._end_late()
            if time.monotonic() - asked_at >= _LOOK_EVERY_S:
                self._end_in_vain()
                asked_at = time.monotonic()

    def _sleeps(self) -> bool:
        """Sleep until it is time to look; return False at once if there is nothing to wait for."""
        with self._changing:
            ends = [wait.end for wait in self._waits]
            self._is_looking = bool(ends)
        if ends:
            time.sleep(max(0.0, min(_LOOK_EVERY_S, min(ends) - time.monotonic())))
        return bool(ends)

    def _end_late(self) -> None:
        with self._changing:
            now = time.monotonic()
            for wait in [wait for wait in self._waits if wait.end <= now]:
                wait.is_late = True
                self._wake(wait)

    def _end_in_vain(self) -> None:
        """Ask the host once for all waits that have heard nothing for a look, without holding up those that end meanwhile."""
        with self._changing:
            silent = [wait for wait in self._waits if wait.silence_s >= _LOOK_EVERY_S]
        try:
            if not silent or self._is_there():
                return
        except Exception:
            _log.exception("cannot ask a host whether it is there")  # deadlines hold all the same
            return
        with self._changing:
            for wait in self._waits.intersection(silent):
                wait.is_in_vain = True
                self._wake(wait)

    def _wake(self, wait: Wait) -> None:
        self._waits.discard(wait)
        wait.wake()
