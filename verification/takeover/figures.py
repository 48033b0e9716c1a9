"""How long takeovers took, from the logs of the instances that took over."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

STANDS_BY, TAKES_OVER, GIVES_WAY = "standing by: instance ", " takes over: ", "standing by again"
DETECTED = "detected"
_LINE = re.compile(r"^(\S+ \S+),(\d{3}) INFO \S+: took over in \S+ s, with epoch \d+: (.+)$", re.MULTILINE)
_STEP = re.compile(r"(\w+) ([\d.]+) s")


@dataclass(frozen=True, slots=True)
class Taken:
    """A takeover: the seconds from the end of the active instance to the next commit, in all and by step."""

    seconds: float
    steps: Mapping[str, float]


def taken_over(log: str, since: float) -> Taken | None:
    """Return the last takeover in a log, if its instance has committed after `since`, the end of the one before; else None.

    An instance counts from when it last heard the other one; here it is known when that one ended.
    """
    found = _LINE.findall(log)
    if not found:
        return None
    at, ms, text = found[-1]
    seconds = time.mktime(time.strptime(at, "%Y-%m-%d %H:%M:%S")) + int(ms) / 1_000 - since
    if seconds < 0:
        return None
    steps = {name: float(took) for name, took in _STEP.findall(text)}
    others = {name: took for name, took in steps.items() if name != DETECTED}
    return Taken(seconds, {DETECTED: max(0.0, seconds - sum(others.values())), **others})


def is_watching(log: str) -> bool:
    """Whether the instance of a log stands by, and watches another one."""
    return log.rfind(STANDS_BY) > max(log.rfind(TAKES_OVER), log.rfind(GIVES_WAY))


def read(log: Path) -> str:
    """Return what an instance has logged."""
    return log.read_text(errors="replace")


def summary(taken: Sequence[Taken]) -> dict[str, object]:
    """Return the median and the maximum, in all and by step."""
    if not taken:
        return {"count": 0}
    steps = {
        step: {"median": _rounded(median(values)), "max": _rounded(max(values))}
        for step in taken[0].steps
        if (values := [each.steps[step] for each in taken if step in each.steps])
    }
    seconds = [each.seconds for each in taken]
    return {"count": len(taken), "median": _rounded(median(seconds)), "max": _rounded(max(seconds)), "steps": steps}


def _rounded(seconds: float) -> float:
    return round(seconds, 3)
