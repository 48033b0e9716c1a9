"""An application under measurement: a process tree, started, stopped, and watched from outside (memory, CPU)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

import psutil

from benchmarks.sides.job import Job, Side
from benchmarks.sides.tree import Tree
from verification.harness.processes import HarnessError

if TYPE_CHECKING:
    from typing_extensions import Self

STOP_TIMEOUT_S = 60


class Application:
    """A side running its job, as a process tree; as a context manager it is started on entry and ended on exit."""

    def __init__(self, side: Side, job: Job, environment: Mapping[str, str] | None = None, pinned_to: int | None = None) -> None:
        self.side = side
        self.job = job
        self._environment = {**os.environ, **side.environment(job), **(environment or {})}
        self._pinned_to = pinned_to
        self._log = job.state_dir.with_suffix(".log")
        self._has_ended = False

    def __enter__(self) -> Self:
        command = self.side.command(self.job)
        if self._pinned_to is not None:
            command = ["taskset", "--cpu-list", f"0-{self._pinned_to - 1}", *command]
        with self._log.open("ab") as log:
            self.started_at = time.monotonic()
            self._process = subprocess.Popen(  # noqa: S603 - our own programs
                command,
                cwd=self._log.parent,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.tree = Tree(self._process.pid)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End it gracefully (SIGTERM) after success; kill whatever is left."""
        try:
            if error is None and not self._has_ended:
                self.check()
                self.job.ran_on.update(self.side.runs_on(self.job))
                self._stop()
        finally:
            self.tree.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _stop(self) -> None:
        """End the process, and let its JVM end by itself: it may have an archive of classes to write."""
        others = self.tree.descendants()
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise HarnessError(f"{self.side.name} did not stop in {STOP_TIMEOUT_S} s:\n{self.log_tail()}") from None
        psutil.wait_procs(others, STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill all of it at once, as a crash of the machine would."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self.wait(STOP_TIMEOUT_S)

    def wait(self, timeout_s: float) -> int:
        """Wait until it ends by itself; return the exit code."""
        code = self._process.wait(timeout_s)
        self._has_ended = True
        return code

    def check(self) -> None:
        """Raise if the application has ended: there is nothing to measure."""
        if self._process.poll() is not None:
            raise HarnessError(f"{self.side.name} ended with {self._process.returncode}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-4000:]

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time so far by part: see `Tree.cpu_seconds`."""
        return self.tree.cpu_seconds()

    @property
    def peak_rss_bytes(self) -> int:
        """The largest resident memory of all its processes together."""
        return self.tree.peak_rss_bytes
