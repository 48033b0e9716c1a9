"""What the code of slots is doing now: each writes the stacks of its threads into a file when the driver sends it a signal.

A slot that is stuck in a call, or holds the interpreter, answers all the same: `faulthandler` runs no Python. Stacks are code
only, never values. Only slots on this host can be asked.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import re
import signal
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.epochs.state_directory import StateDirectory

_SIGNAL = signal.SIGUSR2
_ANSWER_S = 0.5
_POLL_S = 0.02
_FRAME = re.compile(r'^  File "(.*)", line \d+ in .*$')
_STARTED = " (most recent call first):"
_PACKAGE = str(Path(__file__).parents[1])
_STANDARD, _INSTALLED = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
_TOOLS = tuple(f"{_INSTALLED}/{name}/" for name in ("pyarrow", "pyspark"))


class _Telling:
    """Where this process tells its stacks; a forked one has to begin anew."""

    def __init__(self) -> None:
        self._process = self._file = -1
        self._directory: Path | None = None

    def is_done(self, directory: Path) -> bool:
        """Whether this process tells them there."""
        return self._process == os.getpid() and self._directory == directory

    def replace(self, directory: Path, file: int) -> None:
        """Note the open file, and close the one before."""
        if self._file >= 0:
            os.close(self._file)
        self._process, self._directory, self._file = os.getpid(), directory, file


_telling = _Telling()


def stacks_directory(directory: str, application_id: str) -> Path:
    """Return where the slots of an application tell their stacks on this host."""
    return StateDirectory(directory, application_id).root / "stacks"


def tell_stacks(directory: Path) -> None:
    """Let this process tell its stacks from now on, in a file of the directory, whose parent has to exist."""
    if _telling.is_done(directory) or not directory.parent.is_dir():
        return
    with suppress(OSError):  # a full disk ends no epoch
        directory.mkdir(mode=0o700, exist_ok=True)
        path = directory / str(os.getpid())
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        faulthandler.register(_SIGNAL, file=file, all_threads=True)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # now it may be asked; until this process ends
        _telling.replace(directory, file)


def stacks(directory: Path) -> dict[int, str]:
    """Return the stacks of the slots of this host, by process; "" for one that does not answer."""
    asked = [each for path in sorted(directory.glob("[0-9]*")) for each in _asked(path)]
    return {int(path.name): _answer(path) for path in asked}


def _asked(path: Path) -> Iterator[Path]:
    """Ask a process, if it is there: without its handler, the signal would end it. A file that is left of another is removed."""
    with suppress(OSError):
        with _opened(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.ftruncate(file, 0)
                os.kill(int(path.name), _SIGNAL)
                yield path
                return
        path.unlink()


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _answer(path: Path) -> str:
    """Return what a process has written, as soon as it writes no more."""
    end, before = time.monotonic() + _ANSWER_S, ""
    while time.monotonic() < end:
        time.sleep(_POLL_S)
        with suppress(OSError):
            found = path.read_text(encoding="utf-8", errors="replace")
            if found and found == before:
                return found
            before = found
    return before


def doing(told: str) -> list[str]:
    r"""Return where the threads of a process are in user code: the frame that Penstock has called, and the newest one.

    Example:
        >>> places = "/app/clients.py", "/app/app.py", f"{_PACKAGE}/lanes/lane.py"
        >>> frames = [f'  File "{place}", line {number} in f' for number, place in enumerate(places)]
        >>> doing("\n".join(["Thread 0x1 (most recent call first):", *frames]))
        ['File "/app/app.py", line 1 in f, now in File "/app/clients.py", line 0 in f']
    """
    found = []
    for thread in told.split(_STARTED)[1:]:
        frames = [line.strip() for line in thread.splitlines() if _FRAME.match(line)]
        ours = next((number for number, frame in enumerate(frames) if _PACKAGE in frame), len(frames))
        theirs = [frame for frame in frames[:ours] if _is_of_users(frame)]
        if theirs and ours < len(frames):
            found.append(theirs[-1] + (f", now in {theirs[0]}" if len(theirs) > 1 else ""))
    return found


def _is_of_users(frame: str) -> bool:
    """Whether a frame is neither Penstock's, nor of the standard library, nor of what Penstock works with."""
    place = frame.removeprefix('File "')
    if place.startswith((_PACKAGE, "<frozen ", *_TOOLS)):
        return False
    return place.startswith(_INSTALLED) or not place.startswith(_STANDARD)
