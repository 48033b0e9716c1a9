"""`python -m verification.operations`: checks and measures what operators need who did not write the application.

Writes reports/operations.json and prints its figures last.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verification.harness.broker import NEVER_KILLED, Broker
from verification.operations import checklist, dashboard, overhead, plan_cases, questions, readiness

REPORT = Path("reports/operations.json")
BROKER = {**NEVER_KILLED, "log.cleaner.backoff.ms": "15000"}
CHECKLIST = ("-q", "--no-cov", "-p", "no:randomly", "-m", "security", "tests")
LETTERS = ("dlq-replay", "dlq-replay-into-nodes")
QUICK = ("probes",)
"""The parts of a quick run: the checklist's tests and the cases of plans are also part of `make test` and `make test-jvm`,
and `make chaos` replays dead letters."""
Figures = dict[str, Any]


class Campaign:
    """A directory and a broker for the parts that share one."""

    def __init__(self, directory: Path, *, is_quick: bool) -> None:
        self._directory = directory
        self._is_quick = is_quick

    @property
    def parts(self) -> dict[str, Callable[[], Figures]]:
        """All parts by name, in the order in which they run."""
        return {
            "security": self._security,
            "plan": self._plan,
            "probes": self._probes,
            "dashboard": self._dashboard,
            "dead-letters": self._dead_letters,
            "queries": self._queries,
            "overhead": self._overhead,
        }

    def _security(self) -> Figures:
        return {"security_items": checklist.run(CHECKLIST)}

    def _plan(self) -> Figures:
        with self._broker() as broker:
            right, of = plan_cases.run(broker, self._directory)
        return {"plan_cases": {"right": right, "of": of}}

    def _probes(self) -> Figures:
        with self._broker() as broker:
            restored = readiness.cold_restore(broker, self._directory, 400_000 if self._is_quick else 1_000_000)
            return {"cold_restore": restored, "hung_epoch": readiness.hung_epoch(broker, self._directory)}

    def _dashboard(self) -> Figures:
        with self._broker() as broker:
            return {"dashboard": dashboard.run(broker, self._directory)}

    def _dead_letters(self) -> Figures:
        report = self._directory / "chaos.json"
        command = [sys.executable, "-m", "verification.chaos", "--only", *LETTERS, "--report", str(report)]
        subprocess.run(command, check=False)
        found = json.loads(report.read_text(encoding="utf-8"))
        return {"dlq_replay_violations": found["violations"], "dlq_replay_kills": found["kills"]}

    def _queries(self) -> Figures:
        with self._broker() as broker:
            found = questions.run(broker, self._directory, **({"spans": 2, "records": 7_000_000} if self._is_quick else {}))
        return {"query_p95_ms": found["p95_ms"], "query_loss": found["loss"], "queries": found}

    def _overhead(self) -> Figures:
        with self._broker() as broker:
            found = overhead.run(broker, self._directory, 500_000 if self._is_quick else 2_000_000)
        return {"overhead": found["loss"], "observed": found["records_per_s"]}

    def _broker(self) -> Broker:
        return Broker(heap="1g", settings=BROKER)


def is_good(figures: Figures) -> bool:
    """Whether all required conditions hold; figures of speed alone are only reported."""
    checks: dict[str, Callable[[Any], bool]] = {
        "security_items": lambda found: not found["failed"],
        "plan_cases": lambda found: found["right"] == found["of"],
        "dlq_replay_violations": lambda found: found == 0,
        "queries": lambda found: found["failures"] == 0,
        "cold_restore": lambda found: (
            found["ready_statuses"] == [503, 200] and found["live_statuses"] == [200] and found["progress_rises"]
        ),
        "hung_epoch": lambda found: found["live_status"] == 503 and found["exit_code"] == readiness.HUNG_CODE,
    }
    return all(check(figures[name]) for name, check in checks.items() if name in figures)


def main(arguments: list[str] | None = None) -> int:
    """Run the parts; the exit code is 0 if all required conditions hold."""
    parser = argparse.ArgumentParser(prog="python -m verification.operations")
    parser.add_argument("--quick", action="store_true", help="run some parts only, with smaller inputs")
    parser.add_argument("--only", nargs="*", default=None, metavar="PART")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="operations-"))
    figures: Figures = {}
    try:
        chosen = options.only or (QUICK if options.quick else None)
        for name, part in Campaign(directory, is_quick=options.quick).parts.items():
            if chosen is None or name in chosen:
                print(f"== {name}", flush=True)
                figures |= part()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    figures["seconds"] = round(time.monotonic() - began)
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=1))
    return 0 if is_good(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
