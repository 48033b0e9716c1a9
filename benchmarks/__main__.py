"""`python -m benchmarks`: Penstock and its rivals in the same run, alternating.

Writes reports/bench.json after each measurement; `python -m benchmarks.report` makes tables and plots of it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from benchmarks.bench import SIDES, Bench, Options
from benchmarks.measurements import alone, growth, idle, latency, restore, start, throughput
from benchmarks.report.report import Report
from benchmarks.workloads import WORKLOADS
from verification.harness.processes import ended_by_sigterm

REPORT = Path("reports/bench.json")
QUICK_REPORT = Path("reports/bench-quick.json")
QUICK_SCALE = 0.01
QUICK_PARTS = ("B",)
QUICK_SIDES = ("penstock", "kafka-streams")

PARTS: dict[str, Callable[[Bench], None]] = {
    **{letter: partial(throughput.run, letter=letter) for letter in WORKLOADS},
    **{f"I-{rate}": partial(latency.run, rate=rate) for rate in latency.RATES},
    "J": start.run,
    "K": restore.run,
    "M": growth.run,
    "idle": idle.run,
    "timers": alone.timers,
    "calls": alone.calls,
    "queries": alone.queries,
}
"""All parts, in the order in which they run. (L), CPU time and memory, is measured with A–H."""


def main(arguments: list[str] | None = None) -> int:
    """Run the requested parts; the exit code is 1 if a run was invalid."""
    given = _parsed(arguments)
    parts = given.only or (QUICK_PARTS if given.quick else tuple(PARTS))
    sides = given.sides or (QUICK_SIDES if given.quick else tuple(SIDES))
    options = Options(
        rounds=given.rounds or (1 if given.quick else 3), sides=sides, scale=given.scale or (QUICK_SCALE if given.quick else 1)
    )
    path = given.report or (QUICK_REPORT if given.quick else REPORT)
    report = Report(
        path, {"parts": parts, "rounds": options.rounds, "sides": sides, "scale": options.scale}, resumes=given.resume
    )
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        with ended_by_sigterm():
            for part in parts:
                bench = Bench(directory, options, report)
                with bench.tolerance(("parts", part)):
                    PARTS[part](bench)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        report.write()
    for name, goal in report.content["goals"].items():
        if goal["measured"] is not None:
            print(f"{'reached' if goal['reached'] else 'MISSED ':7} {name}: {goal['measured']:g} (goal: {goal['goal']})")
    return 1 if report.failures else 0


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--only", type=_names(PARTS), metavar="A,B,…", help=f"some of the parts: {', '.join(PARTS)}")
    parser.add_argument("--sides", type=_names(SIDES), metavar="NAME,…", help=f"some of the sides: {', '.join(SIDES)}")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scale", type=float, help="the share of all sizes: 0.1 is a tenth of the records")
    parser.add_argument("--quick", action="store_true", help="some parts and sides with few records, to see that it works")
    parser.add_argument("--resume", action="store_true", help="add to the report, and replace the parts that run again")
    parser.add_argument("--report", type=Path)
    return parser.parse_args(arguments)


def _names(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}. Choose from {', '.join(known)}.")
        return names

    return read


if __name__ == "__main__":
    sys.exit(main())
