"""Runs the cells of a notebook, and asks the value of each last line what it shows in a notebook. It needs, and has, no IPython.

`python -m verification.pictures.kernel NOTEBOOK` prints the outputs as JSON.
"""

from __future__ import annotations

import ast
import contextlib
import json
import sys
import time
from code import InteractiveInterpreter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_READING_S = 4.0
"""Between two cells, as somebody would take who reads the output: an application that the one has started works meanwhile."""


class Cell(NamedTuple):
    """A cell of a notebook: code, or text in Markdown."""

    is_code: bool
    source: str


class Output(NamedTuple):
    """What a cell shows: its kind is `html`, `svg` or `text`; None if it shows nothing."""

    kind: str | None
    content: str


class Interpreter(InteractiveInterpreter):
    """Python that runs cells in one namespace, and keeps the first error."""

    def __init__(self) -> None:
        super().__init__({"__name__": "__main__"})
        self.error: BaseException | None = None

    def showtraceback(self) -> None:
        """Keep the error that ended a cell."""
        self.error = sys.exc_info()[1]

    def run(self, source: str, name: str) -> list[Any]:
        """Run a cell; return the value of its last line, if it is an expression with a value."""
        *before, last = ast.parse(source, name).body
        values: list[Any] = []
        with _displayed(values):
            self.runcode(compile(ast.Module(before, []), name, "exec"))
            if self.error is None:
                self.runcode(compile(ast.Interactive([last]), name, "single"))
        if self.error is not None:
            raise self.error
        return values


@contextlib.contextmanager
def _displayed(values: list[Any]) -> Iterator[None]:
    """Collect what expressions would print."""
    before, sys.displayhook = sys.displayhook, lambda value: None if value is None else values.append(value)
    try:
        yield
    finally:
        sys.displayhook = before


def cells(notebook: Path) -> list[Cell]:
    """Return the cells of a file."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [Cell(cell["cell_type"] == "code", "".join(cell["source"])) for cell in found]


def outputs(sources: Sequence[str], reading_s: float = _READING_S) -> list[Output]:
    """Run code cells, and return what each shows."""
    interpreter, found = Interpreter(), []
    for number, source in enumerate(sources, start=1):
        values = interpreter.run(source, f"<cell {number}>")
        found.append(shown(values[-1]) if values else Output(None, ""))
        if number < len(sources):
            time.sleep(reading_s)
    return found


def shown(value: object) -> Output:
    """Return what a notebook would show of a value: the richest of what it offers."""
    for kind in ("html", "svg"):
        give = getattr(value, f"_repr_{kind}_", None)
        if give is not None:
            return Output(kind, give())
    return Output("text", repr(value))


def main() -> None:
    """Run the notebook that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m verification.pictures.kernel NOTEBOOK")
    print(json.dumps(outputs([cell.source for cell in cells(Path(sys.argv[1])) if cell.is_code])))


if __name__ == "__main__":
    main()
