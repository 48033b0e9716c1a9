"""An event loop for tests on which waiting takes no time: when all tasks wait, the clock skips ahead."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.calls import LoopThread

ROUNDING = 1e-6
"""Added to each wait, so that it ends in spite of rounding errors."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose time is the driver's wall clock, plus the time that was skipped.

    Time is skipped only while a caller waits for the loop, and only if the loop waits for nothing but time: it really waits for
    open connections and for blocking functions.
    """

    def __init__(self, wall_clock_ms: Callable[[], int], thread: LoopThread) -> None:
        self.passed: float = 0.0
        self._wall_clock_ms = wall_clock_ms
        self._start_ms = wall_clock_ms()
        super().__init__(_SkippingSelector(self, thread))

    def time(self) -> float:
        """The current time, in seconds since the loop was created: larger numbers would be too coarse for short waits."""
        return (self._wall_clock_ms() - self._start_ms) / 1000 + self.passed


class _SkippingSelector(selectors.DefaultSelector):
    """Returns at once if the loop waits for nothing but time."""

    def __init__(self, loop: VirtualTimeLoop, thread: LoopThread) -> None:
        super().__init__()
        self._loop = loop
        self._thread = thread

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, after at most `timeout` of the loop's time."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if not self._thread.is_waited_for:
            return super().select(None)  # between epochs time stands still
        if timeout is None or self._waits_for_more_than_time():
            before = time.monotonic()
            ready = super().select(timeout)
            self._loop.passed += time.monotonic() - before
            return ready
        self._loop.passed += timeout + ROUNDING
        return ready

    def _waits_for_more_than_time(self) -> bool:
        registered: Mapping[Any, selectors.SelectorKey] = self.get_map()
        return len(registered) > 1 or bool(self._thread.blocking)  # one wakes the loop from other threads
