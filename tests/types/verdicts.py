"""The errors that a program expects, compared with those that a type checker found.

A line that is wrong on purpose ends with `# error: arg-type | reportArgumentType`: the code of mypy's error and the rule of
pyright's. All other lines are correct.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CHECKERS = ("mypy", "pyright")

_MARK = re.compile(r"#\s*error:\s*(?P<mypy>[\w-]+)\s*\|\s*(?P<pyright>\w+)\s*$")
_MEANT = re.compile(r"#\s*error\b")


@dataclass(frozen=True, order=True)
class Error:
    """An error in a line of a program; `kind` is the checker's name for it."""

    file: str
    line: int
    kind: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True)
class Verdict:
    """The result of a checker: the number of expected errors, the missed ones, and the unexpected ones."""

    expected: int
    missed: tuple[Error, ...]
    unexpected: tuple[Error, ...]


def expected_errors(programs: Mapping[str, str], checker: str) -> list[Error]:
    """The errors that a checker should find in programs, given as texts by file name."""
    found = []
    for file, text in programs.items():
        for number, line in enumerate(text.splitlines(), start=1):
            mark = _MARK.search(line)
            if mark is not None:
                found.append(Error(file, number, mark[checker]))
            elif _MEANT.search(line):
                raise ValueError(f"{file}:{number}: a mark is `# error: <code of mypy> | <rule of pyright>`, not: {line.strip()}")
    return found


def judge(expected: Iterable[Error], found: Iterable[Error]) -> Verdict:
    """Whether all expected errors were found, and no others.

    A checker may find more errors in a line that is wrong: it then does not know the parameters of a lambda there.
    """
    expected, found = list(expected), sorted(set(found))
    kinds = {(error.file, error.line, error.kind) for error in found}
    wrong = {(error.file, error.line) for error in expected}
    missed = tuple(error for error in expected if (error.file, error.line, error.kind) not in kinds)
    unexpected = tuple(error for error in found if (error.file, error.line) not in wrong)
    return Verdict(len(expected), missed, unexpected)
