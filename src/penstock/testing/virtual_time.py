"""An event loop for tests, on which waiting takes no time: when nothing is left to do but wait, the clock is put forward."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.calls import LoopThread

ROUNDING = 1e-6
"""Added to each wait, so that it is over in spite of how numbers are rounded."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose time is the driver's wall clock, plus what has been waited for since.

    Time is only put forward while somebody waits for the loop, and as long as all it waits for is time: a connection that is open
    or a blocking function that is under way is waited for as it is.
    """

    def __init__(self, wall_clock_ms: Callable[[], int], thread: LoopThread) -> None:
        self.passed = 0.0
        self._wall_clock_ms = wall_clock_ms
        self._start_ms = wall_clock_ms()
        super().__init__(_SkippingSelector(self, thread))

    def time(self) -> float:
        """Now, in seconds since the loop was made: large numbers would leave no room for short waits."""
        return (self._wall_clock_ms() - self._start_ms) / 1000 + self.passed


class _SkippingSelector(selectors.DefaultSelector):
    """Waits for nothing if it is asked to wait for time alone."""

    def __init__(self, loop: VirtualTimeLoop, thread: LoopThread) -> None:
        super().__init__()
        self._loop = loop
        self._thread = thread

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, at the latest after `timeout` of the loop's time."""
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
