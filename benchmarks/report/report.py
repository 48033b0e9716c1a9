"""The report while it grows: written to its file after each measurement, so that a run that is cut off leaves what it has."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report.goals import goals
from benchmarks.report.statistics import medians, rounded, spreads
from verification.harness.processes import ROOT

Place = tuple[str, ...]
"""Where figures belong, such as `("throughput", "B", "penstock")`."""
SHOWN = ("per_s", "p50", "p95", "p99", "first_commit_s", "cold_start_s", "cpu_us_per_record", "cpu_percent")


class Report:
    """Figures by place. Each place has its rounds, their median and their spread."""

    def __init__(self, path: Path, options: Mapping[str, Any], *, resumes: bool = False) -> None:
        self._path = path
        self._began = time.monotonic()
        self.content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if resumes and path.exists() else {}
        self._took_s = self.content.get("took_s", 0)
        self.content.update(options=dict(options), machine=_machine(), revision=revision())
        self.failures = 0
        self.ran_on: dict[str, Mapping[str, Any]] = {}
        """Where the last application of each side ran its lanes: engine, slots, Spark tasks. Empty for rivals."""

    def begin(self, place: Place, **about: Any) -> None:
        """Start a part: what an earlier run found there is dropped."""
        self._at(place[:-1])[place[-1]] = dict(about)
        print(f"== {' '.join(place)}: {about.get('title', '')}", flush=True)

    def add(self, place: Place, figures: Mapping[str, Any], **about: Any) -> None:
        """Add a round. A figure of Penstock also has where its lanes ran, in any of its rounds."""
        at = self._at(place)
        at.update(about)
        if (where := self.ran_on.get(place[-1])) and dict(where) not in at.setdefault("ran_on", []):
            at["ran_on"].append(dict(where))
        at.setdefault("rounds", []).append(rounded(dict(figures)))
        at["median"], at["spread"] = rounded(medians(at["rounds"])), rounded(spreads(at["rounds"]))
        self._say(place, f"{json.dumps(about)} " * bool(about) + _words(figures))
        self.write()

    def note(self, place: Place, figures: Any) -> None:
        """Set what has no rounds."""
        self._at(place[:-1])[place[-1]] = rounded(figures)
        self._say(place, json.dumps(rounded(figures)))
        self.write()

    def leave_out(self, place: Place, reason: str) -> None:
        """A side does not take part."""
        self._at(place)["left_out"] = reason
        self._say(place, f"left out: {reason}")
        self.write()

    def fail(self, place: Place, error: Exception) -> None:
        """A run that is invalid."""
        self.failures += 1
        self._at(place).setdefault("failed", []).append(str(error)[-2000:])
        self._say(place, f"FAILED: {error}")
        self.write()

    def get(self, *path: str) -> Any:
        """What is at a path; None if nothing."""
        return look_up(self.content, *path)

    def write(self) -> None:
        """Write the file."""
        self.content["goals"] = goals(self.content)
        self.content["took_s"] = round(self._took_s + time.monotonic() - self._began)
        self._path.parent.mkdir(exist_ok=True)
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        partial.replace(self._path)

    def _at(self, place: Place) -> dict[str, Any]:
        at = self.content
        for name in place:
            at = at.setdefault(name, {})
        return at

    def _say(self, place: Place, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {' '.join(place)}: {text}", flush=True)


def look_up(content: Mapping[str, Any], *path: str) -> Any:
    """What is at a path; None if nothing."""
    at: Any = content
    for name in path:
        if not isinstance(at, Mapping) or name not in at:
            return None
        at = at[name]
    return at


def _words(figures: Mapping[str, Any]) -> str:
    chosen = {name: figures[name] for name in SHOWN if name in figures} or figures
    return json.dumps(rounded(chosen))


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_mb": psutil.virtual_memory().total // 1_000_000,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def revision() -> str:
    """The commit that was measured; `+` if there were changes."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - git, on the path
    return done.stdout.strip()
