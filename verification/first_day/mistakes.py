"""The mistakes of docs/mistakes.md: how many of them are answered as the page says, by their tests."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass

from verification.harness.processes import ROOT

PAGE = "docs/mistakes.md"
TESTS = ("tests/unit/mistakes", "tests/jvm/mistakes")
_TIMEOUT_S = 1_800
_ROW = re.compile(r"^\| ((?!mistake|-)[^|]+) \|", re.MULTILINE)
_TEST = re.compile(r"^\S+\.py::(?:\w+::)*test_(\w+)(?:\[.*\])? (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """How many mistakes there are, and those that are not answered as they should be."""

    of: int
    wrong: tuple[str, ...]

    @property
    def right(self) -> int:
        """How many are answered as they should be."""
        return self.of - len(self.wrong)


def provoke() -> Answered:
    """Make all mistakes."""
    command = [sys.executable, "-m", "pytest", "-v", "--no-cov", "--color=no", "--tb=line", "-p", "no:randomly", *TESTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    return judged((ROOT / PAGE).read_text(encoding="utf-8"), done.stdout)


def judged(page: str, output: str) -> Answered:
    """Return what pytest's output says about the rows of the page: a mistake is right if all tests of its name have passed."""
    outcomes = defaultdict(set)
    for name, outcome in _TEST.findall(output):
        outcomes[name.replace("_", " ")].add(outcome)
    rows = _ROW.findall(page)
    return Answered(of=len(rows), wrong=tuple(row for row in rows if outcomes[row] != {"PASSED"}))
