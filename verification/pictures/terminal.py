"""Pictures of the terminal: real commands in a pseudo-terminal, and their output as a browser shows it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from verification.harness.processes import ROOT, HarnessError
from verification.pictures.camera import SCREEN, Camera, Window

ROWS = 50
PATIENCE_S = 120
SHARPNESS = 1.5
"""Pixels of the picture for each of the page."""

_PAPER, _INK = (24, 28, 35), (214, 220, 229)
_COLOURS = [
    _PAPER, (240, 113, 106), (104, 195, 130), (226, 179, 92), (99, 160, 245), (196, 139, 236), (86, 194, 206), _INK,
]  # fmt: skip
THEME = TerminalTheme(_PAPER, _INK, _COLOURS, [*_COLOURS[:7], (255, 255, 255)])

# The line height is at most that of the font, so that the lines of tables touch.
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>terminal</title><style>
body {{ margin: 0; background: rgb{paper}; color: rgb{ink}; }}
pre {{ display: inline-block; margin: 0; padding: 18px 22px; font: 14px/16px "DejaVu Sans Mono", Menlo, Consolas, monospace; }}
</style></head><body><pre>{text}</pre></body></html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as somebody types it, its exit code, and words that its output must have."""

    line: str
    exit_code: int = 0
    shows: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A terminal in a directory, with variables besides those of this process."""

    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    columns: int = 100

    def run(self, *commands: Command) -> str:
        """Run commands one after the other; return the screen as text with escape sequences."""
        return "\n".join(f"\x1b[32m$\x1b[0m {command.line}\n{self._output(command)}" for command in commands)

    def _output(self, command: Command) -> str:
        program, *arguments = shlex.split(command.line)
        assert program == "penstock", f"{command.line}: only commands of penstock are run"
        ours, theirs = pty.openpty()
        try:
            process = self._started([sys.executable, "-m", "penstock.cli", *arguments], theirs)
            output = _until_closed(ours, command.line)
        finally:
            os.close(ours)
        code = process.wait(PATIENCE_S)
        assert code == command.exit_code, f"{command.line} ended with {code}, not {command.exit_code}:\n{output}"
        plain = Text.from_ansi(output).plain
        missing = [words for words in command.shows if words not in plain]
        assert not missing, f"{command.line} does not show {missing}:\n{output}"
        return output

    def _started(self, command: Sequence[str], terminal: int) -> subprocess.Popen[bytes]:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, self.columns, 0, 0))
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, **self.environment, "PYTHONPATH": path, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        try:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                env=environment,
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
            )
        finally:
            os.close(terminal)


def _until_closed(terminal: int, what: str) -> str:
    """Read until the command has closed its end."""
    parts: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise HarnessError(f"{what} has not ended in {PATIENCE_S} s: {b''.join(parts)[-500:]!r}")
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            part = b""
        if not part:
            return b"".join(parts).decode().replace("\r\n", "\n")
        parts.append(part)


def page(screen: str, columns: int) -> str:
    """Return a screen as a page."""
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True, color_system="256", legacy_windows=False)
    console.print(Text.from_ansi(screen.rstrip()), no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
    text = console.export_html(theme=THEME, code_format="{code}", inline_styles=True)
    return PAGE.format(paper=_PAPER, ink=_INK, text=text.rstrip())


def take(camera: Camera, name: str, screen: str, columns: int) -> Path:
    """Take a picture of a screen."""
    with tempfile.TemporaryDirectory(prefix="terminal-") as directory:
        file = Path(directory) / "page.html"
        file.write_text(page(screen, columns), encoding="utf-8")
        camera.open(file.as_uri(), Window(SCREEN.width * 2, SCREEN.height))
        camera.check()
        return camera.take_part(name, "pre", SHARPNESS)
