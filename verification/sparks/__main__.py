"""`python -m verification.sparks`: the tests of lanes in Spark, and topologies on it, with each version of PySpark.

Each version has an environment of its own, which `make sparks` makes. Writes reports/sparks.json and a log for each version, and
prints one line for each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from verification.harness.processes import PARTS, ROOT, ended_by_sigterm

LOCK = ROOT / "tools" / "sparks" / "pyspark.lock"
ENVIRONMENTS = PARTS / "sparks"
REPORT = Path("reports/sparks.json")
TESTS = ("-m", "pytest", "--no-cov", "-q", "-m", "jvm", "tests/jvm/spark")
TOPOLOGIES = ("-m", "verification.integration", "--quick", "--hosts", "spark")
IDENTITY = "import pyspark; from pyspark.find_spark_home import _find_spark_home; print(pyspark.__version__, _find_spark_home())"
_OF_ANOTHER = ("SPARK_", "PYSPARK_")
"""Variables that begin so would bring another Spark, or options that were made for another."""

Run = Callable[[Sequence[str]], tuple[int, str]]
"""Runs the Python of an environment; returns its exit code and its output."""


@dataclass(frozen=True)
class Row:
    """What came of a version; `differences` is None if topologies were not run."""

    version: str
    home: str
    passed: int
    failed: int
    differences: int | None
    seconds: float
    missed: tuple[str, ...]

    def __str__(self) -> str:
        topologies = "" if self.differences is None else f", {self.differences} topologies that differ"
        said = "ok" if not self.missed else ", ".join(self.missed)
        return (
            f"PySpark {self.version}: {self.passed} tests passed, {self.failed} failed{topologies} ({self.seconds:.0f} s): {said}"
        )


def main(arguments: list[str] | None = None) -> int:
    """Run them all; the exit code is 0 if nothing failed with any version."""
    parser = argparse.ArgumentParser(prog="python -m verification.sparks")
    parser.add_argument("versions", nargs="*", help="of PySpark; all that tools/sparks/pyspark.lock has if left out")
    parser.add_argument("--quick", action="store_true", help="the tests only, no topologies")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    rows = []
    options.report.parent.mkdir(exist_ok=True)
    with ended_by_sigterm():
        for version in options.versions or locked():
            log = options.report.with_name(f"sparks-{version}.log")
            part = None if options.quick else options.report.with_name(f"sparks-{version}-integration.json")
            rows.append(examined(version, ENVIRONMENTS / version, runner(ENVIRONMENTS / version, log), part))
            print(rows[-1], flush=True)
    report = {"python": sys.version.split()[0], "missed": sum(bool(row.missed) for row in rows), "rows": [*map(asdict, rows)]}
    options.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if report["missed"] else 0


def locked() -> list[str]:
    """Return the versions that are supported, as they are pinned."""
    return re.findall(r"^pyspark==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)


def runner(environment: Path, log: Path) -> Run:
    """Return what runs the Python of an environment, with no Spark but its own; output goes to the log, too."""
    log.write_text("", encoding="utf-8")

    def run(arguments: Sequence[str]) -> tuple[int, str]:
        command = [str(environment / "bin" / "python"), *arguments]
        own = variables(os.environ, environment)
        done = subprocess.run(
            command, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        with log.open("a", encoding="utf-8") as file:
            file.write(done.stdout)
        return done.returncode, done.stdout

    return run


def variables(given: Mapping[str, str], environment: Path) -> dict[str, str]:
    """Return the variables of a run: Spark's home must be the PySpark that is installed there."""
    kept = {name: value for name, value in given.items() if not name.startswith(_OF_ANOTHER)}
    return {**kept, "PATH": os.pathsep.join([str(environment / "bin"), given.get("PATH", os.defpath)]), "PYTHONPATH": str(ROOT)}


def examined(version: str, environment: Path, run: Run, part: Path | None) -> Row:
    """Return what came of a version; `part` is where topologies report to, None if they are left out."""
    began, missed = time.monotonic(), []
    code, output = run(["-c", IDENTITY])
    found, _, home = (output.strip().splitlines() or [""])[-1].partition(" ")
    if code or found != version or not Path(home).resolve().is_relative_to(environment.resolve()):
        missed.append(f"it is {found or 'missing'}, of {home or 'nowhere'}")
    code, output = run(TESTS)
    counts = {what: int(count) for count, what in re.findall(r"(\d+) (passed|failed|errors?|skipped)", output)}
    passed, failed = counts.pop("passed", 0), sum(counts.values())
    if code or failed or not passed:
        missed.append("tests")
    differences = None
    if part is not None:
        part.unlink(missing_ok=True)
        code, _ = run([*TOPOLOGIES, "--report", str(part)])
        differences = json.loads(part.read_text(encoding="utf-8"))["differences"] if part.exists() else None
        if code or differences != 0:
            missed.append("topologies")
    return Row(version, home, passed, failed, differences, round(time.monotonic() - began, 1), tuple(missed))


if __name__ == "__main__":
    sys.exit(main())
