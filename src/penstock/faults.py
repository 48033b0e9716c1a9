"""Fault points: named places where a test makes the process die, fail or stall, to prove that nothing is lost there.

The environment arms them, for this process and its children: `PENSTOCK_FAULT=point:nth:action`, where the action is `kill`
(SIGKILL to the process `PENSTOCK_FAULT_PID`, by default this one), `raise`, or `sleep=SECONDS`. Commas separate several.
Hits are counted over all processes in `PENSTOCK_FAULT_DIR`; the file `fired` there gets a line before each action.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_ENTRY = re.compile(r"([\w.]+):(\d+):(kill|raise|sleep=\d+(?:\.\d+)?)")


class InjectedFaultError(RuntimeError):
    """Raised by an armed point."""


class _Fault(NamedTuple):
    nth: int
    action: str


def _nothing(name: str) -> None:
    """Do nothing: a point that is not armed costs one call."""


def _parse(armed: str) -> dict[str, _Fault]:
    faults = {}
    for entry in armed.split(","):
        found = _ENTRY.fullmatch(entry)
        if found is None:
            raise ValueError(
                f"PENSTOCK_FAULT: invalid {entry!r}: use point:nth:kill, point:nth:raise or point:nth:sleep=SECONDS."
            )
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
    """Count one more hit, over all processes, and return how many there are."""
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
        time.sleep(60)  # a worker that killed the driver waits to be killed too
    elif action == "raise":
        raise InjectedFaultError(f"fault point {name}")
    else:
        time.sleep(float(action.removeprefix("sleep=")))


_environment = os.environ.get("PENSTOCK_FAULT", "")


class _Current:
    """What happens at the points of this process."""

    hit: Callable[[str], None] = staticmethod(
        _armed(_parse(_environment), Path(os.environ.get("PENSTOCK_FAULT_DIR", "."))) if _environment else _nothing
    )


def point(name: str) -> None:
    """Trigger the fault that is armed at this point, if any: `point("barrier.after_begin")`."""
    _Current.hit(name)


@contextmanager
def replaced(by: Callable[[str], None]) -> Iterator[None]:
    """Call this at all points in this block, as a simulation does."""
    before, _Current.hit = _Current.hit, staticmethod(by)
    try:
        yield
    finally:
        _Current.hit = before
