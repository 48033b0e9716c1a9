"""The user's own lines: where a node or an expression was declared, for messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import NamedTuple

PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"


class Line(NamedTuple):
    """A line of the user's program."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} (in {self.function})"


_declared: ContextVar[Line | None] = ContextVar("declared", default=None)


@contextmanager
def declared_at(line: Line) -> Iterator[None]:
    """Within the block, `user_line` returns this one: a draft is written long after its lines have run."""
    before = _declared.set(line)
    try:
        yield
    finally:
        _declared.reset(before)


def _is_ours(frame: FrameType) -> bool:
    """Whether a frame runs Penstock's code: from a file of its own, or a method that a dataclass has generated."""
    file = frame.f_code.co_filename
    is_generated = file == "<string>" and str(frame.f_globals.get("__name__")).startswith("penstock.")
    return is_generated or file.startswith(PACKAGE)


def user_line() -> Line:
    """Return the line that declared what is being written, or else the innermost line on the stack outside Penstock."""
    declared = _declared.get()
    if declared is not None:
        return declared
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
