"""Reads the output of another process line by line.

What functions print comes the same way as log lines, and may be a record's. So log lines have a seal, which records do not know.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import select
import threading
import time
from collections.abc import Callable

LONGEST_LINE = 1 << 16
"""Longer lines are split."""

SEAL = "PENSTOCK_LOG_SEAL"
"""The environment variable by which processes that this one starts know the seal of their log lines."""

_PATIENCE_S = 1.0

_log = logging.getLogger(__name__)


class LineReader:
    """Passes on every line that is written to a pipe, in a thread of its own, until all writers have closed the pipe.

    As a context manager it returns the end to write to.
    """

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard
        os.environ.setdefault(SEAL, secrets.token_hex(16))
        self._reading, self._writing = os.pipe()
        self._passing = threading.Lock()  # held while lines are passed on
        self._is_closed = False
        self._is_over = False
        threading.Thread(target=self._read, name="penstock-output", daemon=True).start()

    def __enter__(self) -> int:
        atexit.register(self.stop)
        return self._writing

    def __exit__(self, *_: object) -> None:
        os.close(self._writing)

    def stop(self) -> None:
        """Pass on pending lines, then nothing more: a thread that writes while Python shuts down can block its exit."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with self._passing:
                if self._is_closed or not self._has_come(0) or time.monotonic() > deadline:
                    self._is_over = True
                    return
            time.sleep(0.01)

    def _read(self) -> None:
        rest = b""
        while not self._is_closed:
            self._has_come()
            with self._passing:
                found = os.read(self._reading, LONGEST_LINE)
                *lines, rest = (rest + found).split(b"\n")
                if rest and (not found or len(rest) >= LONGEST_LINE):
                    lines.append(rest)
                    rest = b""
                for line in lines if not self._is_over else ():
                    self._pass_on(line.decode("utf-8", "backslashreplace"))
                if not found:
                    self._is_closed = True
                    os.close(self._reading)

    def _has_come(self, within_ms: int | None = None) -> bool:
        """Whether there is something to read, or the end of the pipe; waits for it, at most `within_ms` if given."""
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        return bool(poll.poll(within_ms))

    def _pass_on(self, line: str) -> None:
        try:
            self._heard(line)
        except Exception:  # if reading stopped, the other process would block as soon as the pipe is full
            _log.exception("cannot pass on a line of a slot's or of Spark's output")
