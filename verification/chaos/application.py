"""The application as a separate process: started with its fault points, and killed as a whole or in part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import psutil

from verification.harness.processes import ROOT, HarnessError, wait_until

COMMAND = (sys.executable, "-m", "verification.chaos.app")


FORKING = ("penstock.spark.daemon", "penstock.engines.forked.process")
"""The modules of the processes that fork workers."""

_SHOWN = 4000


class Part(Enum):
    """The processes of an application that a signal is for."""

    DRIVER = "driver"
    """The Python process that was started; the others outlive it briefly."""
    JVM = "jvm"
    """Spark's process; all processes of an application that runs without Spark."""
    WORKER = "worker"
    """One of the Python processes that run lanes."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a start ended."""

    code: int
    seconds: float
    was_asked: bool
    """Whether the campaign sent it a signal, or let it die at a fault point."""


class Application:
    """One application at a time, in its own process session, by which its processes are found, whatever their parents."""

    def __init__(self, directory: Path, environment: Mapping[str, str], command: Sequence[str] = COMMAND) -> None:
        self.directory = directory
        self.exits: list[Exit] = []
        self._command = command
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._started = 0.0
        self._was_asked = False
        self._sessions: list[int] = []
        self.scratch.mkdir(parents=True, exist_ok=True)

    @property
    def scratch(self) -> Path:
        """The directory of its temporary files, including Spark's."""
        return self.directory / "scratch"

    @property
    def state_dir(self) -> Path:
        """The directory of its stores."""
        return Path(self._environment["PENSTOCK_STATE_DIR"])

    @property
    def log(self) -> Path:
        """The log of the last start."""
        return self.directory / f"start-{self._starts:03}.log"

    @property
    def fired(self) -> int:
        """How many of the fault points of the last start have fired."""
        file = self._faults / "fired"
        return len(file.read_text().splitlines()) if file.exists() else 0

    @property
    def _faults(self) -> Path:
        return self.directory / f"faults-{self._starts:03}"

    def change(self, **environment: str) -> None:
        """Change the environment of later starts."""
        self._environment |= environment

    def start(self, fault: str = "", victim: Part = Part.DRIVER, **environment: str) -> None:
        """Start it. `fault` is for `PENSTOCK_FAULT`; at the point its driver dies, or the worker that reaches it."""
        if self.is_running:
            raise HarnessError("the application is already running")
        self._starts += 1
        self._was_asked = "kill" in fault and victim is Part.DRIVER
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        settings = {**os.environ, **self._environment, "PYTHONPATH": path, "TMPDIR": str(self.scratch), **environment}
        if fault:
            settings |= {"PENSTOCK_FAULT": fault, "PENSTOCK_FAULT_DIR": str(self._faults), "CHAOS_VICTIM": victim.value}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.directory,
                env=settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started = time.monotonic()
        self._sessions.append(self._process.pid)

    def dies_at(self, fault: str, timeout_s: float, **environment: str) -> bool:
        """Start it, and wait until it ends; return whether it was killed at a fault point."""
        self.start(f"{fault}:kill", Part.DRIVER, **environment)
        return self.wait(timeout_s) == -signal.SIGKILL and self.fired > 0

    def run(self, timeout_s: float, **environment: str) -> None:
        """Start it, and wait until it ends by itself; raise if it fails."""
        self.start("", Part.DRIVER, **environment)
        code = self.wait(timeout_s)
        if code:
            raise HarnessError(f"the application ended with {code}:\n{self.log.read_text(errors='replace')[-_SHOWN:]}")

    @property
    def is_running(self) -> bool:
        """Whether its driver runs; if not, its exit is recorded."""
        if self._process is None:
            return False
        code = self._process.poll()
        if code is None:
            return True
        self.exits.append(Exit(code, time.monotonic() - self._started, self._was_asked))
        self._process = None
        return False

    def wait(self, timeout_s: float) -> int:
        """Wait until it ends; return the exit code, negative for a signal."""
        wait_until(f"the application ends (see {self.log})", lambda: not self.is_running, timeout_s, every_s=0.02)
        return self.exits[-1].code

    def signal(self, part: Part, number: signal.Signals) -> bool:
        """Send a signal to a part of it; return whether any process received it."""
        ends = number in (signal.SIGKILL, signal.SIGTERM) and part is not Part.WORKER
        found = self._found(part)
        self._was_asked |= ends and bool(found)
        sent = [_sent(process, number) for process in found]
        return any(sent)

    def kill(self, part: Part) -> bool:
        """SIGKILL."""
        return self.signal(part, signal.SIGKILL)

    def stop(self, timeout_s: float = 60) -> int:
        """Stop it gracefully (SIGTERM); return the exit code."""
        self.signal(Part.DRIVER, signal.SIGTERM)
        return self.wait(timeout_s)

    def close(self) -> None:
        """Kill whatever is left of any start."""
        self._kill_all()
        if self._process is not None:
            self._process.wait()
        self._kill_all()  # what the driver may have started meanwhile

    def _kill_all(self) -> None:
        for process in self.processes():
            _sent(process, signal.SIGKILL)

    def processes(self) -> list[psutil.Process]:
        """All processes of all its starts that still exist."""
        return [process for process in psutil.process_iter() if _session(process) in self._sessions]

    def _found(self, part: Part) -> list[psutil.Process]:
        if part is Part.DRIVER:
            return [] if self._process is None else [psutil.Process(self._process.pid)]
        session = self._sessions[-1] if self._sessions else -1
        found = [process for process in psutil.process_iter() if _session(process) == session]
        if part is Part.JVM:
            return [process for process in found if _name(process) == "java"] or found
        if part is Part.WORKER:
            return [process for process in found if _is_worker(process)][-1:]
        return found


def _sent(process: psutil.Process, number: signal.Signals) -> bool:
    try:
        process.send_signal(number)
    except psutil.Error:  # already gone
        return False
    return True


def _session(process: psutil.Process) -> int:
    try:
        return -1 if process.status() == psutil.STATUS_ZOMBIE else os.getsid(process.pid)
    except (psutil.Error, ProcessLookupError):
        return -1


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _is_worker(process: psutil.Process) -> bool:
    """Whether it is a child of Spark's daemon or of ours: it is forked and has the same command line."""
    try:
        parent = process.parent()
        return parent is not None and any(name in parent.cmdline() and name in process.cmdline() for name in FORKING)
    except psutil.Error:
        return False
