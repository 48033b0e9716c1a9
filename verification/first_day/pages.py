"""What a page asks its reader to do: the code blocks of a Markdown file, in order, and the commands of those of a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CONSOLE, PYTHON = "console", "python"

_FENCE = re.compile(r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# ([\w-]+\.py)\n")
_PROMPT = "$ "


class PageError(Exception):
    """A page that a reader could not follow; the message names the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What follows a prompt. `shown` is the output that the page has for it, if it has any."""

    text: str
    line: int
    shown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block. `line` is that of its first line in the page, `file` the name under which a reader saves it."""

    language: str
    text: str
    line: int
    file: str | None = None

    def commands(self) -> Iterator[Command]:
        """Yield the commands of a terminal, each with the output that follows it."""
        lines = self.text.splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith(_PROMPT)]
        if starts[:1] != [0]:
            raise PageError(f"line {self.line}: a block of a terminal must begin with a command: {_PROMPT}…")
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            first = start
            while lines[first].endswith("\\") and first + 1 < end:  # the command goes on in the next line
                first += 1
            text = "\n".join(lines[start : first + 1]).removeprefix(_PROMPT)
            shown = "\n".join(lines[first + 1 : end])
            yield Command(text=text, line=self.line + start, shown=shown or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page by its name, with the blocks that a reader runs or saves."""

    name: str
    blocks: tuple[Block, ...]

    def commands(self) -> list[Command]:
        """Return all commands, in order."""
        return [command for block in self.blocks if block.language == CONSOLE for command in block.commands()]


def read_page(root: Path, name: str) -> Page:
    """Read a page of the repository."""
    return page_of(name, (root / name).read_text(encoding="utf-8"))


def page_of(name: str, text: str) -> Page:
    """Return the page with this text: blocks of a terminal or of Python, and those that say under which name they are saved."""
    return Page(name=name, blocks=tuple(block for block in _blocks(text) if block.language in {CONSOLE, PYTHON} or block.file))


def _blocks(text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        named = _FILE_NAME.match(found["text"]) if found["language"] == PYTHON else None
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(
            language=found["language"], text=found["text"], line=line, file=found["title"] or (named[1] if named else None)
        )
