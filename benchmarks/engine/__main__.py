"""`python -m benchmarks.engine`: what it costs that lanes run in Spark's tasks, each figure with its goal, in groups.

Writes reports/engine.json after each round: the rows of a group replace those that it had there, and the others stay. So a run
that is cut off leaves what it has, and another one with --only fills in the rest.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.bench import INVALID, Bench, Options
from benchmarks.engine import one_machine, reading, round_trips, scaling, standby, start, three_hosts
from benchmarks.engine.group import Group, Round, rows_of
from benchmarks.report.report import Report, revision
from penstock.errors import PenstockError
from verification.harness.processes import ended_by_sigterm

REPORT = Path("reports/engine.json")
ROUNDS = 5
SCALE = 0.5
GROUPS: dict[str, Group] = {
    group.name: group
    for group in (
        round_trips.GROUP,
        reading.GROUP,
        start.GROUP,
        one_machine.GROUP,
        three_hosts.GROUP,
        standby.GROUP,
        scaling.GROUP,
    )
}
"""All groups, in the order in which they run."""


def main(arguments: list[str] | None = None) -> int:
    """Measure the groups; the exit code is 1 if something went wrong, but not if a goal is missed."""
    options = _parsed(arguments)
    failures = 0
    with ended_by_sigterm():
        for name in options.only or GROUPS:
            failures += not measured(GROUPS[name], options.rounds, options.scale, options.report)
    for name, row in _read(options.report).items():
        verdict = "reached" if row["reached"] else "MISSED "
        print(f"{verdict} {name}: {row['measured']:.3g} ({row['is']} {row['goal']:g}; rounds {row['rounds']}, {row['date']})")
    if failures:
        print(f"{failures} groups have failed")
    return 1 if failures else 0


def measured(group: Group, rounds: int, scale: float, path: Path) -> bool:
    """Measure a group, and add its rows to the report after each round; return whether nothing went wrong."""
    directory = Path(tempfile.mkdtemp(prefix="bench-engine-"))
    bench = Bench(directory, Options(rounds=rounds, scale=scale), Report(directory / "bench.json", {}))
    began, found = time.monotonic(), list[Round]()
    print(f"== {group.name}: about {group.minutes} minutes for {ROUNDS} rounds", flush=True)
    try:
        for one in group.measure(bench):
            found.append(one)
            shown = {name: float(f"{figure:.4g}") for name, figure in one.figures.items()}
            print(f"{time.strftime('%H:%M:%S')} {group.name}, round {len(found)}: {json.dumps(shown)}", flush=True)
            _merge(path, group, found)
    except (*INVALID, PenstockError) as error:
        print(f"FAILED {group.name}: {error}", flush=True)
        return False
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{group.name} took {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    return True


def _merge(path: Path, group: Group, found: list[Round]) -> None:
    about = {"date": time.strftime("%Y-%m-%d"), "revision": revision()}
    others = {name: row for name, row in _read(path).items() if row["group"] != group.name}
    rows = {name: {**row, **about} for name, row in rows_of(group, found).items()}
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({**others, **rows}, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    minutes = ", ".join(f"{name} {group.minutes}" for name, group in GROUPS.items())
    about = (
        f"Minutes with default settings on two idle cores: {minutes}; {sum(group.minutes for group in GROUPS.values())} in all."
    )
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=about)
    parser.add_argument("--only", nargs="+", choices=GROUPS, metavar="GROUP", help=f"some of: {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--scale", type=float, default=SCALE, help="the share of all records and seconds")
    parser.add_argument("--report", type=Path, default=REPORT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
