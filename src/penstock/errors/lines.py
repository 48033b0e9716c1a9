"""The user's own lines: where a node or an expression was declared, for messages."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"


class Line(NamedTuple):
    """A line of the user's program."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} (in {self.function})"


def user_line() -> Line:
    """Return the innermost line on the stack outside Penstock."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
