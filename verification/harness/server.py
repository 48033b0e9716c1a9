"""What a test starts and closes, above all the process of a server, which it may also pause and kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from verification.harness.processes import HarnessError

if TYPE_CHECKING:
    from typing_extensions import Self

_SHOWN = 4000


class Started(ABC):
    """As a context manager, it is started on entry and closed on exit."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it responds."""

    @abstractmethod
    def close(self) -> None:
        """End it, even if it has only partly started."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Server(Started):
    """A server with a directory of its own, which is removed when it is closed.

    `title` is its name in errors, `prefix` that of its directory.
    """

    def __init__(self, title: str, prefix: str) -> None:
        self._title = title
        self._directory = Path(tempfile.mkdtemp(prefix=prefix))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running().pid

    def kill(self) -> None:
        """Kill it immediately (SIGKILL)."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def pause(self) -> None:
        """Suspend it (SIGSTOP): its connections stay open and nothing responds."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill it if it is running, and remove its directory."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start its process; `environment` is added to that of this one."""
        if self._process is not None:
            raise HarnessError(f"{self._title} is already running")
        with (self._directory / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                command, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise HarnessError(f"{self._title} is not running")
        return self._process

    def _check_it_starts(self) -> None:
        """Raise, with its output, if it has ended."""
        code = self._running().poll()
        if code is not None:
            output = (self._directory / "output.log").read_text(errors="replace")
            raise HarnessError(f"{self._title} ended with {code} while starting:\n{output[-_SHOWN:]}")
