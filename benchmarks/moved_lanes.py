"""`python -m benchmarks.moved_lanes`: how long lanes of a million keys take to serve again when they move between hosts.

An application on two hosts, with a lane on each and no free core, loses a host and gets it back, then loses it for good and gets
another one. So one lane is rebuilt from its changelog, returns to a host that has had it, twice, and is copied. While it moves,
records are sent; the longest that one waited for its result is the outage. Prints figures, and writes reports/moved-lanes.json.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.bench import Bench, Options
from benchmarks.cluster import write_settings
from benchmarks.measurements.prober import Prober
from benchmarks.measurements.samples import Sampler
from benchmarks.report.report import Report
from benchmarks.sides.application import Application
from benchmarks.sides.penstock import Penstock
from benchmarks.workloads import Totals
from penstock.runtime.loop.agenda import MARK_EVERY_S
from verification.harness.processes import HarnessError
from verification.harness.spark_cluster import Host, SparkCluster

REPORT = Path("reports/moved-lanes.json")
LANES = 2
KEYS_OF_LANE = 1_000_000
RATE = 50
STEADY_S = 1.2 * MARK_EVERY_S
"""Longer than marks are apart: what a host has had before a move is near then."""
MOVE_TIMEOUT_S = 300
RESULTS_TIMEOUT_S = 60
_RESTORED = re.compile(r"restored \d+ lanes \((?P<kinds>[^)]*)\): (?P<records>\d+) records in (?P<seconds>[\d.]+) s")
_RUN_AGAIN = "restoring lanes, then running epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move of a lane: what its restore found, what it read, how long that took, and the longest that a record waited."""

    found: str
    records: int
    restore_s: float
    outage_s: float
    runs: int
    """How often the epoch ran in which the lane served again."""


@dataclass(frozen=True, slots=True)
class Log:
    """The log of an application."""

    path: Path

    def restores(self) -> list[re.Match[str]]:
        """All restores so far."""
        return list(_RESTORED.finditer(self.path.read_text(errors="replace")))

    def runs_again(self) -> int:
        """How often an epoch had to run again because lanes had moved."""
        return self.path.read_text(errors="replace").count(_RUN_AGAIN)


def main(arguments: list[str] | None = None) -> int:
    """Move a lane in each way; return 0 whatever the figures are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.moved_lanes")
    parser.add_argument("--keys", type=int, default=KEYS_OF_LANE, help="of each lane")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="moved-lanes-"))
    try:
        moves = measure(Bench(directory, Options(), Report(directory / "bench.json", {})), options.keys)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    options.report.parent.mkdir(exist_ok=True)
    figures = {"keys": options.keys, **{name: asdict(move) for name, move in moves.items()}}
    options.report.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    for name, move in moves.items():
        print(
            f"{name}: restored ({move.found}, {move.records:,} records) in {move.restore_s:.1f} s, served again after "
            f"{move.outage_s:.1f} s, in run {move.runs} of its epoch"
        )
    return 0


def measure(bench: Bench, keys: int) -> dict[str, Move]:
    """Return how long each move took, by where the lane's state came from."""
    workload = Totals(title="", keys=LANES * keys, records=LANES * keys)
    side = Penstock()
    with bench.broker() as broker, SparkCluster(LANES + 1, cores=1) as cluster:
        loaded = bench.load(broker, workload)
        write_settings(bench.directory, cluster.settings)
        with bench.job(broker, side, "moved", workload.topology, loaded.sources, cores=LANES) as job:
            progress = side.progress(job)
            try:
                with Application(side, job) as application:
                    Sampler(application, progress, broker.pid).reach(loaded.records)
                    log = Log(job.state_dir.with_suffix(".log"))
                    second = _one_of_two(cluster)
                    with Prober(job) as prober:
                        prober.wait_until_ready(application)
                        probes = _Probes(application, prober, log)
                        moves = {
                            "changelog": probes.move(second.kill),
                            "returned": probes.move(second.start),
                            "returned after a loss": probes.move(second.kill),
                        }
                        cluster.forget(second)
                        moves["copy"] = probes.move(cluster.add)
            finally:
                progress.close()
    return moves


def _one_of_two(cluster: SparkCluster) -> Host:
    """Lose the host whose core was left to other jobs, so that a lost slot has nowhere to go; return one of those with a lane."""
    [spare] = [host for host in cluster.hosts.values() if not host.has_lanes()]
    cluster.forget(spare)
    return list(cluster.hosts.values())[-1]


class _Probes:
    """Records at a low rate, before, while and after a lane moves."""

    def __init__(self, application: Application, prober: Prober, log: Log) -> None:
        self._application = application
        self._prober = prober
        self._log = log

    def move(self, cause: Callable[[], object]) -> Move:
        """Cause a move, and send records until lanes were restored and have served for a while."""
        prober, log = self._prober, self._log
        prober.send(RATE, STEADY_S)
        restored, again = len(log.restores()), log.runs_again()
        first = max(prober.due) + 1
        mover = threading.Thread(target=cause)
        mover.start()
        end = time.monotonic() + MOVE_TIMEOUT_S
        while len(log.restores()) == restored:
            self._application.check()
            if time.monotonic() > end:
                raise HarnessError(f"no lane moved within {MOVE_TIMEOUT_S} s:\n{self._application.log_tail()}")
            prober.send(RATE, 0.5)
        mover.join()
        prober.send(RATE, STEADY_S)
        prober.wait_for_all(RESULTS_TIMEOUT_S)
        last = log.restores()[-1]
        return Move(
            found=last["kinds"],
            records=int(last["records"]),
            restore_s=float(last["seconds"]),
            outage_s=round(max(prober.latencies_ms(range(first, max(prober.due) + 1))) / 1_000, 2),
            runs=1 + log.runs_again() - again,
        )


if __name__ == "__main__":
    sys.exit(main())
