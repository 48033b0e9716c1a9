"""The cost of waiting: a million timers of a lane, and calls to a service for every record, on a broker and Spark.

Usage: python -m benchmarks.time [--only timers|enrichment] [--timers N] [--records N] [--concurrency N] [--epoch-records N]

A full run writes reports/bench-time.json; a part only prints its figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.report.statistics import rounded
from benchmarks.time import enrichment, timers
from verification.harness.broker import Broker

REPORT = Path("reports/bench-time.json")


def main(arguments: list[str] | None = None) -> int:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time")
    parser.add_argument("--only", choices=("timers", "enrichment"))
    parser.add_argument("--timers", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--concurrency", type=int, default=200, help="concurrent calls in each of two processes")
    parser.add_argument("--epoch-records", type=int, default=10_000, help="the maximum number of records of an epoch")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    figures: dict[str, Any] = {}
    if options.only in {None, "timers"}:
        figures["timers"] = rounded(asdict(timers.measure(options.timers)))
        print(f"timers: {json.dumps(figures['timers'])}", flush=True)
    if options.only in {None, "enrichment"}:
        figures["enrichment"] = rounded(asdict(_enrichment(options)))
        print(f"enrichment: {json.dumps(figures['enrichment'])}", flush=True)
    if options.only is None:
        summary = _summary(figures, vars(options), time.monotonic() - began)
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        print(*_lines(summary), sep="\n")
    return 0


def _enrichment(options: argparse.Namespace) -> enrichment.Enrichment:
    directory = Path(tempfile.mkdtemp(prefix="bench-time-"))
    try:
        with Broker() as broker:
            return enrichment.measure(broker, directory, options.records, options.concurrency, options.epoch_records)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _summary(figures: Mapping[str, Any], options: Mapping[str, Any], took_s: float) -> dict[str, Any]:
    asked = figures["enrichment"]
    parts = asked["cpu_us"]
    report: dict[str, Any] = {
        "timers_per_s": figures["timers"]["timers_per_s"],
        "async_records_per_s": asked["warm_per_s"],
        "async_limited_by": _limit(asked["warm_per_s"], asked["limit_per_s"], parts),
        "figures": figures,
        "options": dict(options),
        "machine": {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "took_s": took_s,
    }
    return dict(rounded(report))


def _limit(rate: float, most: float, cpu_us: Mapping[str, float]) -> str:
    """What limits the rate: the number of concurrent calls, or the busiest part of the machine."""
    if rate > 0.8 * most:
        return "the number of concurrent calls"
    part, cores = max(cpu_us, key=cpu_us.__getitem__), os.cpu_count() or 1
    busy = sum(cpu_us.values()) * rate / 1e6
    what = "CPU" if busy > 0.75 * cores else "waiting, or other work on this machine"
    return f"{what}: it has {busy:.1f} of {cores} cores, most of all for the {part} ({cpu_us[part]:.0f} µs a record)"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The last lines to print."""
    waits, asked = report["figures"]["timers"], report["figures"]["enrichment"]
    yield (
        f"timers_per_s: {report['timers_per_s']:,.0f} per core, registered and fired "
        f"(registered {waits['registered_per_s']:,.0f}/s, fired {waits['fired_per_s']:,.0f}/s)"
    )
    yield (
        f"async_records_per_s: {report['async_records_per_s']:,.0f} of at most {asked['limit_per_s']:,.0f} "
        f"(cold {asked['cold_per_s']:,.0f}); p50 of an epoch {asked['epoch_p50_s']:.2f} s; "
        f"limited by {report['async_limited_by']}"
    )


if __name__ == "__main__":
    sys.exit(main())
