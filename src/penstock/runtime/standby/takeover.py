"""The steps of a takeover and how long each took, for the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock import machine
from penstock.observation import EpochReport

_log = logging.getLogger(__name__)

DETECTED, FENCED, POSITION, RESTORED, COMMITTED = "detected", "fenced", "position", "restored", "committed"
"""The other instance is known to be gone; it can no longer commit; what it has committed is known; lanes are there; and the first
epoch of this instance is committed."""


class Takeover:
    """A stopwatch that starts when the other instance was last heard."""

    def __init__(self, heard: float, clock: Callable[[], float] = machine.monotonic) -> None:
        self._began = self._last = heard
        self._clock = clock
        self._seconds: dict[str, float] = {}

    def reached(self, step: str) -> None:
        """Note that a step is done."""
        now = self._clock()
        self._seconds[step], self._last = now - self._last, now

    def on_epoch(self, report: EpochReport) -> None:
        """Log all steps when the first epoch is committed."""
        if COMMITTED not in self._seconds:
            self.reached(COMMITTED)
            steps = ", ".join(f"{step} {seconds:.3f} s" for step, seconds in self._seconds.items())
            _log.info("took over in %.3f s, with epoch %d: %s", self._last - self._began, report.number, steps)
