"""How far work has come that may take hours: who does it says so, piece by piece; who waits for it gives it up if nothing comes.

A process that is stuck, for example because a disk does not answer, is alive all the same: only what it has done counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Advance:
    """How many pieces of some work are done, and where it is now."""

    def __init__(self) -> None:
        self.pieces: int = 0
        self.where: str = ""

    def to(self, where: str) -> None:
        """Note that another piece is done."""
        self.where = where
        self.pieces += 1


_current: ContextVar[Advance | None] = ContextVar("advance", default=None)


def advanced(where: str) -> None:
    """Note that the work of this thread has advanced, and where it is now; does nothing if nobody asks."""
    current = _current.get()
    if current is not None:
        current.to(where)


@contextmanager
def advancing() -> Iterator[Advance]:
    """Follow the work of the block."""
    followed = Advance()
    token = _current.set(followed)
    try:
        yield followed
    finally:
        _current.reset(token)
