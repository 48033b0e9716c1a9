"""A terminal with a shell, as a reader has one: what is typed runs there, and Ctrl-C reaches what runs."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import re
import shlex
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from verification.harness.processes import HarnessError

ROWS, COLUMNS = 50, 120
START_S, INTERRUPT_S = 30, 90
_MARK = "\x1e"
_PROMPT = f"{_MARK}$?{_MARK}"  # which the shell shows with the exit code of the last command
_PROMPT_SHOWN = re.compile(f"{_MARK}(\\d+){_MARK}")
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>78])")
_CTRL_C = b"\x03"
# A process must lead a session to have a terminal; then it becomes the shell.
_LAUNCH = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # who runs in the background ignores it, and so would all that it starts
os.execvp(sys.argv[1], sys.argv[1:])
"""
_SHELL = ("bash", "--norc", "--noprofile", "--noediting", "-i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a command has printed, as plain text, and its exit code: None if it did not end in time and was interrupted."""

    output: str
    code: int | None
    seconds: float


class Terminal:
    """A shell on a terminal of its own. As a context manager, it is closed on exit, and with it everything that runs in it."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._screen, shell_side = os.openpty()
        attributes = termios.tcgetattr(shell_side)
        attributes[3] &= ~termios.ECHO  # what is typed is no output
        termios.tcsetattr(shell_side, termios.TCSANOW, attributes)
        fcntl.ioctl(shell_side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._shell = subprocess.Popen(
            [sys.executable, "-I", "-c", _LAUNCH, *_SHELL],
            cwd=directory,
            env={**environment, "TERM": "xterm", "PS1": _PROMPT, "PS2": "", "VIRTUAL_ENV_DISABLE_PROMPT": "1"},
            stdin=shell_side,
            stdout=shell_side,
            stderr=shell_side,
            start_new_session=True,
        )
        os.close(shell_side)
        self._seen = ""
        self._has_ended = False
        self._news = threading.Condition()
        # What runs would wait if nobody read what it prints.
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()
        self._begun = time.monotonic()
        if self.wait(START_S) is None:
            self.close()
            raise HarnessError(f"no prompt of the shell in {START_S} s; it wrote: {self._seen!r}")
        self.run("set +H", START_S)  # as in a script, "!" means nothing

    def run(self, command: str, timeout_s: float) -> Finished:
        """Run a command until it ends; interrupt it if that takes too long."""
        self.begin(command)
        ended = self.wait(timeout_s)
        if ended is not None:
            return ended
        stopped = self.interrupt()
        return Finished(output=stopped.output, code=None, seconds=stopped.seconds)

    def begin(self, command: str) -> None:
        """Type a command, and leave it to itself."""
        with self._news:
            self._seen = ""
        self._begun = time.monotonic()
        os.write(self._screen, f"{command}\n".encode())

    def interrupt(self) -> Finished:
        """Press Ctrl-C, and wait until the command has ended; the exit code is None if it does not."""
        os.write(self._screen, _CTRL_C)
        ended = self.wait(INTERRUPT_S)
        return ended or Finished(output=self.output, code=None, seconds=time.monotonic() - self._begun)

    def wait(self, timeout_s: float) -> Finished | None:
        """Wait until the command has ended; return None if it runs longer."""
        with self._news:
            self._news.wait_for(lambda: self._has_ended or _PROMPT_SHOWN.search(self._seen), timeout_s)
            prompt = _PROMPT_SHOWN.search(self._seen)
            if prompt is not None:
                seconds = time.monotonic() - self._begun
                return Finished(output=plain(self._seen[: prompt.start()]), code=int(prompt[1]), seconds=seconds)
            if self._has_ended:
                raise HarnessError(f"the shell has ended; it wrote: {self.output[-1000:]}")
            return None

    @property
    def output(self) -> str:
        """What the command that runs has printed so far, as plain text."""
        return plain(self._seen)

    def variables(self, file: Path) -> dict[str, str]:
        """Return the exported variables of the shell, as another one needs them to continue; `file` is overwritten."""
        self._must(f"env -0 > {shlex.quote(str(file))}")
        pairs = file.read_text(encoding="utf-8").split("\0")
        return dict(pair.split("=", 1) for pair in pairs if pair)

    def directory(self) -> Path:
        """Return the directory in which the shell is."""
        return Path(self._must("pwd").strip())

    def close(self) -> None:
        """End the shell and all that it has started, also what leads a session of its own."""
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(self._shell.pid).children(recursive=True)
            for process in started:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
            _, left = psutil.wait_procs(started, timeout=INTERRUPT_S)
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._shell.kill()
        self._shell.wait()
        self._reader.join(START_S)
        os.close(self._screen)

    def _must(self, command: str) -> str:
        done = self.run(command, START_S)
        if done.code != 0:
            raise HarnessError(f"{command}: ended with {done.code}: {done.output}")
        return done.output

    def _read(self) -> None:
        """Keep what is printed, until nothing has the terminal open any more."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while True:
            try:
                piece = os.read(self._screen, 65_536)
            except OSError:  # so Linux says that the terminal is closed
                piece = b""
            with self._news:
                self._seen += decoder.decode(piece)
                self._has_ended = not piece
                self._news.notify_all()
                if self._has_ended:
                    return


def plain(text: str) -> str:
    """Return what a terminal shows as text, without colours and movements of the cursor."""
    return _CONTROL.sub("", text).replace("\r\n", "\n")
