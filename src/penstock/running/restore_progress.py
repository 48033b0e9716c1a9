"""Shows how far a restore has come: a bar on a terminal, a line in the log elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import TextIO

_log = logging.getLogger(__name__)
_WIDTH = 30


class RestoreProgress:
    """Percent and rate of a restore over all lanes."""

    def __init__(self, stream: TextIO | None = None, log_every_s: float = 5.0) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._log_every_s = log_every_s
        self._began = self._said = time.monotonic()
        self._largest: dict[int, int] = {}
        self.left = 0
        self.total = 0

    def __call__(self, left: Mapping[int, int]) -> None:
        """Hear how many offsets each lane still has to read."""
        for lane, offsets in left.items():
            self._largest[lane] = max(offsets, self._largest.get(lane, 0))
        self.total, self.left = sum(self._largest.values()), sum(left.values())
        now = time.monotonic()
        if not self.total or now - self._said < (0.2 if self._stream.isatty() else self._log_every_s):
            return
        self._said = now
        done = self.total - self.left
        rate = done / max(now - self._began, 0.001)
        if self._stream.isatty():
            filled = _WIDTH * done // self.total
            bar = "#" * filled + "." * (_WIDTH - filled)
            self._stream.write(f"\rrestoring [{bar}] {100 * done // self.total:3d} %  {rate:,.0f} records/s ")
            self._stream.flush()
        else:
            _log.info("restoring: %d %%, %d of %d records, %.0f records/s", 100 * done // self.total, done, self.total, rate)

    def close(self) -> None:
        """Leave the line."""
        if self._stream.isatty() and self.total:
            self._stream.write("\n")
