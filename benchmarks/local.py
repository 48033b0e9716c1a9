"""`python -m benchmarks.local`: the local engine beside Kafka Streams, which commits as often: first commit, latency, memory.

Writes reports/bench-local.json and prints its figures.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bench import Bench, Options, in_turn
from benchmarks.measurements import latency, start
from benchmarks.report.report import Report
from benchmarks.sides.application import Application
from benchmarks.sides.job import Side
from benchmarks.sides.kafka_streams import with_commits_every
from benchmarks.sides.penstock import PenstockLocal
from benchmarks.workloads.loading import Loaded
from verification.harness.broker import Broker

REPORT = Path("reports/bench-local.json")
SIDES: dict[str, Side] = {"penstock": PenstockLocal(), "kafka_streams": with_commits_every(100)}
RATE, AFTER_S = 1_000, 60
FIGURES = ("first_commit_s", "p50_ms", "p95_ms", "rss_mb")
FIRST_COMMIT_GOAL_S, MEMORY_GOAL_MB = 2.5, 250


def main(arguments: list[str] | None = None) -> int:
    """Measure both sides in turn; return 0 even if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="the share of all records and seconds")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="bench-local-"))
    about = Report(options.report, {"rounds": options.rounds, "scale": options.scale})
    bench = Bench(directory, Options(rounds=options.rounds, scale=options.scale), about)
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in SIDES}
    try:
        with bench.broker() as broker:
            loaded = bench.load(broker, start.WORKLOAD)
            for number in range(options.rounds):
                for name in in_turn(list(SIDES), number):
                    rounds[name].append(_measure(bench, broker, SIDES[name], loaded))
                    print(f"{name}: {rounds[name][-1]}", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report = {figure: {name: median(found[figure] for found in rounds[name]) for name in SIDES} for figure in FIGURES}
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps({**about.content, **report, "goals": _goals(report), "rounds": rounds}, indent=2) + "\n")
    for figure, found in report.items():
        print(f"{figure:15} {found['penstock']:8.3g}   Kafka Streams {found['kafka_streams']:8.3g}")
    for goal, is_reached in _goals(report).items():
        print(f"{'reached' if is_reached else 'MISSED '} {goal}")
    return 0


def _measure(bench: Bench, broker: Broker, side: Side, loaded: Loaded) -> dict[str, float]:
    """The figures of one round. Memory is proportional (PSS): pages that forked workers share count once."""
    with bench.job(broker, side, "start", start.WORKLOAD.topology, loaded.sources) as job:
        first_commit_s = start.first_commit_s(broker, Application(side, job), 1)
    found = latency.measure(bench, broker, side, latency.EXCHANGES["no exchange"], RATE, (AFTER_S,))
    steady: dict[str, Any] = found[f"after_{AFTER_S}_s"]
    return {
        "first_commit_s": round(first_commit_s, 2),
        "p50_ms": round(steady["p50"], 1),
        "p95_ms": round(steady["p95"], 1),
        "cpu_percent": round(steady["cpu_percent"], 1),
        "rss_mb": round(found["peak_pss_mb"]),
    }


def _goals(report: dict[str, dict[str, float]]) -> dict[str, bool]:
    return {
        f"first commit within {FIRST_COMMIT_GOAL_S} s": report["first_commit_s"]["penstock"] <= FIRST_COMMIT_GOAL_S,
        "p95 below Kafka Streams'": report["p95_ms"]["penstock"] < report["p95_ms"]["kafka_streams"],
        f"memory below {MEMORY_GOAL_MB} MB": report["rss_mb"]["penstock"] < MEMORY_GOAL_MB,
    }


if __name__ == "__main__":
    sys.exit(main())
