"""Shows the progress of a restore: a progress bar on a terminal, otherwise log lines."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from penstock import machine
from penstock.observation import RestoreReport

_log = logging.getLogger(__name__)
_WIDTH = 30


class RestoreProgress:
    """Percent and rate of a restore over all lanes."""

    def __init__(self, stream: TextIO | None = None, log_every_s: float = 5.0) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._log_every_s = log_every_s
        self._began = self._shown = machine.monotonic()
        self._is_on_line = False

    def __call__(self, restore: RestoreReport) -> None:
        """Show the progress, unless that was done a moment ago."""
        now = machine.monotonic()
        total = sum(restore.total.values())
        if not total or now - self._shown < (0.2 if self._stream.isatty() else self._log_every_s):
            return
        self._shown = now
        done = total - sum(restore.left.values())
        rate = done / max(now - self._began, 0.001)
        if self._stream.isatty():
            filled = int(_WIDTH * restore.fraction)
            bar = "#" * filled + "." * (_WIDTH - filled)
            self._stream.write(f"\rrestoring [{bar}] {int(100 * restore.fraction):3d} %  {rate:,.0f} records/s ")
            self._stream.flush()
            self._is_on_line = True
        else:
            _log.info("restoring: %d %%, %d of %d records, %.0f records/s", 100 * restore.fraction, done, total, rate)

    def close(self) -> None:
        """End the line of the progress bar."""
        if self._is_on_line:
            self._stream.write("\n")
