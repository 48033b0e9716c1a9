"""What another process writes, read line by line in this one."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable

LONGEST_LINE = 1 << 16
"""What is longer comes in pieces."""

_log = logging.getLogger(__name__)


class LineReader:
    """Hands on every line that is written to a pipe, in a thread of its own, for as long as somebody has the pipe open.

    The block in which it is used gets the end to give away.
    """

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard
        self._reading, self._writing = os.pipe()
        self._handing_on = threading.Lock()
        self._is_over = False
        threading.Thread(target=self._read, name="penstock-output", daemon=True).start()

    def __enter__(self) -> int:
        atexit.register(self.stop)
        return self._writing

    def __exit__(self, *_: object) -> None:
        os.close(self._writing)

    def stop(self) -> None:
        """Hand on nothing more: a thread that writes while the interpreter is taken down can keep it from ending."""
        with self._handing_on:
            self._is_over = True

    def _read(self) -> None:
        with os.fdopen(self._reading, encoding="utf-8", errors="backslashreplace", newline="\n") as lines:
            while line := lines.readline(LONGEST_LINE):
                with self._handing_on:
                    if not self._is_over:
                        self._hand_on(line.removesuffix("\n"))

    def _hand_on(self, line: str) -> None:
        try:
            self._heard(line)
        except Exception:  # noqa: BLE001 - if nobody reads on, the other process is held up as soon as the pipe is full
            _log.exception("a line that Spark has written could not be passed on")
