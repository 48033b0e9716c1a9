"""A reader who follows a page: types its commands into a terminal, saves its files, and opens a second terminal when needed."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from verification.first_day import commands
from verification.first_day.outcome import Record, difference
from verification.first_day.pages import CONSOLE, PYTHON, Block, Command, Page
from verification.first_day.serving import is_caught_up
from verification.first_day.terminal import Finished, Terminal

if TYPE_CHECKING:
    from typing_extensions import Self

INSTALL_S, COMMAND_S, SERVE_S, PROGRAM_S, WATCH_S = 900, 120, 120, 300, 3
LOOK_EVERY_S = 0.2
STOPPED = 0
"""The exit code of what Ctrl-C ends, as docs/runbook.md has it."""
_SHOWN = 2_000


class Session:
    """One page, in a directory of its own.

    An application runs in the first terminal until the page starts another one or ends. Meanwhile, other commands run in the
    second, which continues where the first one was. `look` is called when an application serves, and returns what is wrong. As a
    context manager, it closes both terminals.
    """

    def __init__(
        self,
        page: Page,
        directory: Path,
        environment: Mapping[str, str],
        kafka_jars: Path,
        look: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.record = Record(page)
        self._directory = directory
        self._kafka_jars = kafka_jars
        self._look = look
        self._first = Terminal(directory, environment)
        self._second: Terminal | None = None
        self._serving: tuple[Block, Command] | None = None
        self._program: list[Block] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for terminal in (self._second, self._first):
            if terminal is not None:
                terminal.close()

    def prepare(self, command: str) -> None:
        """Run what the page takes for granted: it has no time, and must succeed."""
        done = self._first.run(command, INSTALL_S)
        if done.code != 0:
            raise RuntimeError(f"{command} ended with {done.code}:\n{done.output}")

    def follow(self) -> Record:
        """Do what the page says, from top to bottom. Without an installation, nothing else can work."""
        for number, block in enumerate(self.record.page.blocks):
            if block.language == CONSOLE:
                if not self._type(block):
                    for unreached in self.record.page.blocks[number + 1 :]:
                        self.record.fails(unreached, unreached.line, "not reached, because the installation failed")
                    break
            elif block.file is not None:
                (self._front.directory() / block.file).write_text(block.text, encoding="utf-8")
            elif block.language == PYTHON and not self._is_excerpt(block):
                self._program.append(block)
        self._stop()
        self._run_program()
        return self.record

    @property
    def _front(self) -> Terminal:
        """The terminal that takes commands."""
        return self._second if self._serving is not None and self._second is not None else self._first

    def _type(self, block: Block) -> bool:
        """Run the commands of a block; return whether the page can be followed further."""
        for command in block.commands():
            if commands.serves(command.text):
                self._serve(block, command)
            elif commands.watches(command.text):
                self._watch(block, command)
            elif not self._run(block, command) and commands.installs(command.text):
                return False
        return True

    def _run(self, block: Block, command: Command) -> bool:
        limit_s = INSTALL_S if commands.installs(command.text) else COMMAND_S
        done = self._front.run(command.text, limit_s)
        self.record.took(command, done.seconds)
        problem = _problem_of(command, done, limit_s)
        if problem is not None:
            self.record.fails(block, command.line, problem)
        return problem is None

    def _serve(self, block: Block, command: Command) -> None:
        """Start an application, wait until it has processed what there is, and turn to the second terminal."""
        self._stop()
        home, directory = commands.kafka_home(command.text), self._first.directory()
        if home is not None:
            (directory / home).mkdir()  # as it is unpacked, with its jars in libs
            (directory / home / "libs").symlink_to(self._kafka_jars)
        variables = self._first.variables(self._directory / ".variables")
        begun = time.monotonic()
        self._first.begin(command.text)
        self._serving = block, command
        while not is_caught_up():
            ended = self._first.wait(LOOK_EVERY_S)
            if ended is not None:
                self._serving = None
                self.record.fails(
                    block, command.line, f"ended with exit code {ended.code} before it served:\n{_end(ended.output)}"
                )
                return
            if time.monotonic() > begun + SERVE_S:
                self.record.fails(block, command.line, f"does not serve after {SERVE_S} s:\n{_end(self._first.output)}")
                break
        self.record.took(command, time.monotonic() - begun)
        if problem := self._look():
            self.record.fails(block, command.line, problem)
        if self._second is not None:
            self._second.close()
        self._second = Terminal(directory, variables)

    def _stop(self) -> None:
        """Press Ctrl-C where an application runs."""
        if self._serving is None:
            return
        (block, command), self._serving = self._serving, None
        if problem := _problem_of_stopping(self._first.interrupt()):
            self.record.fails(block, command.line, problem)

    def _watch(self, block: Block, command: Command) -> None:
        """Look for a moment at what shows an application, then end it."""
        terminal, begun = self._front, time.monotonic()
        terminal.begin(command.text)
        ended = terminal.wait(WATCH_S)
        while ended is None and not terminal.output.strip() and time.monotonic() < begun + COMMAND_S:
            ended = terminal.wait(LOOK_EVERY_S)
        has_shown = bool(terminal.output.strip())
        if ended is not None:
            problem: str | None = f"ended by itself, with exit code {ended.code}:\n{_end(ended.output)}"
        else:
            problem = _problem_of_stopping(terminal.interrupt())
        self.record.took(command, time.monotonic() - begun)
        if problem is None and not has_shown:
            problem = "showed nothing"
        if problem is not None:
            self.record.fails(block, command.line, problem)

    def _is_excerpt(self, block: Block) -> bool:
        """Whether a block is a part of a program that is there already, which the page's commands run."""
        return any(block.text in file.read_text(encoding="utf-8") for file in self._front.directory().glob("*.py"))

    def _run_program(self) -> None:
        """Run the blocks without a name, each of which continues the one before it, as one program: its lines are the page's."""
        if not self._program:
            return
        file = self._directory / "blocks_of_the_page.py"
        file.write_text(program(self._program), encoding="utf-8")
        done = self._first.run(f"python {shlex.quote(str(file))}", PROGRAM_S)
        if done.code == 0:
            return
        line = failing_line(done.output, file.name)
        for block in self._program:
            if block.line + block.text.count("\n") > line:  # the one that failed, and those behind it, which did not run
                self.record.fails(block, max(line, block.line), f"exit code {done.code}:\n{_end(done.output)}")


def program(blocks: list[Block]) -> str:
    """Return one program of the blocks of a page, each in the lines that it has there."""
    text = ""
    for block in blocks:
        text += "\n" * (block.line - 1 - text.count("\n")) + block.text
    return text


def failing_line(output: str, file: str) -> int:
    """Return the line of a program whose statement failed; 0 if there is none, because nothing could run."""
    found = re.findall(rf'{re.escape(file)}", line (\d+), in <module>', output)
    return int(found[-1]) if found else 0


def _problem_of(command: Command, done: Finished, limit_s: float) -> str | None:
    if done.code is None:
        return f"not finished after {limit_s} s:\n{_end(done.output)}"
    if done.code != 0:
        return f"ended with exit code {done.code}:\n{_end(done.output)}"
    if command.shown is not None and (unlike := difference(command.shown, done.output)):
        return f"prints something else than the page shows:\n{unlike}"
    if commands.found_nothing(done.output):
        return f"finds nothing:\n{_end(done.output)}"
    return None


def _problem_of_stopping(done: Finished) -> str | None:
    if done.code == STOPPED:
        return None
    how = "does not end" if done.code is None else f"ends with exit code {done.code}, not {STOPPED},"
    return f"{how} on Ctrl-C:\n{_end(done.output)}"


def _end(output: str) -> str:
    return output.strip()[-_SHOWN:] or "(no output)"
