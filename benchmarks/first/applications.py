"""An application under measurement: a process tree, started, stopped, and watched from outside (memory, CPU)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import psutil

from benchmarks.first.sides import Job, Side
from verification.harness.processes import HarnessError

if TYPE_CHECKING:
    from typing_extensions import Self

STOP_TIMEOUT_S = 60
SAMPLE_EVERY_S = 0.25


class Application:
    """A side running its job, as a process tree; as a context manager it is started on entry and ended on exit."""

    def __init__(self, side: Side, job: Job, environment: Mapping[str, str] | None = None) -> None:
        self._side = side
        self._job = job
        self._environment = {**os.environ, **(environment or {})}
        self._log = job.state_dir.with_suffix(".log")
        self._has_ended = False
        self.peak_rss_bytes = 0

    def __enter__(self) -> Self:
        command = self._side.command(self._job)
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
        self._root = psutil.Process(self._process.pid)
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End it gracefully (SIGTERM) after success; kill whatever is left."""
        try:
            if error is None and not self._has_ended:
                self.check()
                self._stop()
        finally:
            self._over.set()
            self._sampler.join()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise HarnessError(f"{self._side.name} did not stop in {STOP_TIMEOUT_S} s:\n{self.log_tail()}") from None

    def wait(self, timeout_s: float) -> int:
        """Wait until it ends by itself; return the exit code."""
        code = self._process.wait(timeout_s)
        self._has_ended = True
        return code

    def check(self) -> None:
        """Raise if the application has ended: there is nothing to measure."""
        if self._process.poll() is not None:
            raise HarnessError(f"{self._side.name} ended with {self._process.returncode}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-4000:]

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time so far by part: the process that was started, Java's compiler, Java and all other child processes."""
        spent: dict[str, float] = {}
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                part = "application" if process == self._root else "jvm" if process.name() == "java" else "workers"
                times = process.cpu_times()
                compiling_s = _compiling_seconds(process)
                spent[part] = spent.get(part, 0.0) + times.user + times.system - compiling_s
                spent["compiler"] = spent.get("compiler", 0.0) + compiling_s
        return spent

    def _tree(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return []

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_EVERY_S):
            rss_bytes = 0
            for process in self._tree():
                with contextlib.suppress(psutil.Error):
                    rss_bytes += process.memory_info().rss
            self.peak_rss_bytes = max(self.peak_rss_bytes, rss_bytes)


def _compiling_seconds(process: psutil.Process) -> float:
    """CPU time of Java's compiler threads; 0 on systems that do not show the names of threads."""
    spent_s = 0.0
    for thread in process.threads():
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text(encoding="utf-8")
            if name.startswith(("C1 Compiler", "C2 Compiler")):
                spent_s += thread.user_time + thread.system_time
    return spent_s
