"""What came of the pages: how long each command took, and what was not as the page says."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from verification.first_day.pages import Block, Command, Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A command that was run. That of an application is the time until it serves."""

    page: str
    line: int
    command: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a reader would stumble over; `block` is the line in which the code block begins."""

    page: str
    block: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.what}"


@dataclass(slots=True)
class Record:
    """Everything that was noted while a page was followed."""

    page: Page
    timings: list[Timing] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def took(self, command: Command, seconds: float) -> None:
        """Note how long a command took."""
        self.timings.append(Timing(page=self.page.name, line=command.line, command=command.text, seconds=round(seconds, 1)))

    def fails(self, block: Block, line: int, what: str) -> None:
        """Note what was not as the page says."""
        self.problems.append(Problem(page=self.page.name, block=block.line, line=line, what=what))

    @property
    def failed_blocks(self) -> int:
        """The number of code blocks with a problem."""
        return len({problem.block for problem in self.problems})

    def seconds_of(self, commands: Sequence[Command]) -> float:
        """Return how long some commands took together."""
        lines = {command.line for command in commands}
        return round(sum(timing.seconds for timing in self.timings if timing.line in lines), 1)


def difference(shown: str, printed: str) -> str | None:
    """Return how the output of a command differs from what the page shows; white space at the end of lines does not count."""
    wanted, found = _lines(shown), _lines(printed)
    if wanted == found:
        return None
    return "\n".join(difflib.unified_diff(wanted, found, "the page", "the command", lineterm=""))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
