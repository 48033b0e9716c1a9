"""Fault points: named places where a test makes the process die, fail or stall, to prove that nothing is lost there.

Armed by the environment, for this process and those it starts: `PENSTOCK_FAULT=point:nth:action`, the action being `kill`
(SIGKILL to the process that `PENSTOCK_FAULT_PID` names, or to this one), `raise`, or `sleep=SECONDS`. Several are separated
by commas. Hits are counted over all processes in `PENSTOCK_FAULT_DIR`, where a file `fired` gets a line before the action.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_ENTRY = re.compile(r"([\w.]+):(\d+):(kill|raise|sleep=\d+(?:\.\d+)?)")


class InjectedFaultError(RuntimeError):
    """What an armed point raises."""


class _Fault(NamedTuple):
    nth: int
    action: str


def _nothing(name: str) -> None:
    """Not armed: a point costs one call."""


def _parse(armed: str) -> dict[str, _Fault]:
    faults = {}
    for entry in armed.split(","):
        found = _ENTRY.fullmatch(entry)
        if found is None:
            raise ValueError(f"PENSTOCK_FAULT: {entry!r} is not point:nth:kill, point:nth:raise or point:nth:sleep=SECONDS")
        name, nth, action = found.groups()
        faults[name] = _Fault(int(nth), action)
    return faults


def _armed(faults: dict[str, _Fault], directory: Path) -> Callable[[str], None]:
    directory.mkdir(parents=True, exist_ok=True)

    def hit(name: str) -> None:
        fault = faults.get(name)
        if fault is not None and _count(directory / f"{name}.hits") == fault.nth:
            with (directory / "fired").open("a") as fired:
                fired.write(f"{name} {fault.action} {time.time():.3f}\n")
                fired.flush()
                os.fsync(fired.fileno())
            _act(fault.action, name)

    return hit


def _count(path: Path) -> int:
    """One more hit, counted across processes."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        hits = int(file.read() or 0) + 1
        file.seek(0)
        file.truncate()
        file.write(str(hits))
    return hits


def _act(action: str, name: str) -> None:
    if action == "kill":
        victim = int(os.environ.get("PENSTOCK_FAULT_PID", "0")) or os.getpid()
        os.kill(victim, signal.SIGKILL)
        time.sleep(60)  # a worker that killed the driver waits for its own end
    elif action == "raise":
        raise InjectedFaultError(f"fault point {name}")
    else:
        time.sleep(float(action.removeprefix("sleep=")))


_environment = os.environ.get("PENSTOCK_FAULT", "")
point: Callable[[str], None] = (
    _armed(_parse(_environment), Path(os.environ.get("PENSTOCK_FAULT_DIR", "."))) if _environment else _nothing
)
"""`point("barrier.after_begin")`: pass a named place."""
