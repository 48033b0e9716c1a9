"""The last warnings and errors of this process, as its log has them, for those who look at the dashboard and not at the log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from penstock.observation import Trouble

_KEPT = 20
_LONGEST = 500
_OURS = "penstock"


class _Keeping(logging.Handler):
    """Keeps the last warnings and errors, without secrets."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__(logging.WARNING)
        self._redact = redact
        self._last: deque[Trouble] = deque(maxlen=_KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        what = f"a message of {record.name} that cannot be formatted"
        with suppress(Exception):  # a wrong format must not end what logs it
            what = self._redact(record.getMessage())[:_LONGEST]
        self._last.appendleft(Trouble(int(record.created * 1000), record.levelname.lower(), what))

    def last(self) -> Sequence[Trouble]:
        """Return them, newest first."""
        return tuple(self._last)


@contextmanager
def kept_troubles(redact: Callable[[str], str]) -> Iterator[Callable[[], Sequence[Trouble]]]:
    """Keep what Penstock logs during the block; yield what returns the last ones, newest first."""
    keeping, logger = _Keeping(redact), logging.getLogger(_OURS)
    logger.addHandler(keeping)
    try:
        yield keeping.last
    finally:
        logger.removeHandler(keeping)
