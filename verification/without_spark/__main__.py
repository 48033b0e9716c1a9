"""`python -m verification.without_spark`: environments as `deploy/Dockerfile` makes them, with Spark and without: their sizes.

In the one without, `penstock doctor` finds nothing wrong and an application runs on a broker with the local engine; with Spark's,
it ends at once and names the cure. Writes reports/without-spark.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from verification.first_day.installation import build_wheel
from verification.harness import topics
from verification.harness.broker import NEVER_KILLED, Broker
from verification.harness.processes import ROOT, HarnessError, ended_by_sigterm

REPORT = Path("reports/without-spark.json")
LOCKS = {"with": ROOT / "deploy" / "requirements.lock", "without": ROOT / "deploy" / "requirements-local.lock"}
OF_SPARK = ("pyspark", "py4j", "pandas")
CURE = "or set engine = local, which runs without Spark."
LINES, TEXT = 500, b"to be or not to be"
TIMEOUT_S = 120
APPLICATION = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
words = builder.stream("lines", value=str).flat_map_values(str.split).group_by(lambda _, word: word)
words.count(store="words").to_stream().to("counts", value=int)
app = App("words", builder.build())
if __name__ == "__main__":
    app.run(until="latest")
"""


def main(arguments: list[str] | None = None) -> int:
    """Make both environments, look at them, and run the application; the exit code is 0 if it is as promised."""
    parser = argparse.ArgumentParser(prog="python -m verification.without_spark")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    with ended_by_sigterm(), tempfile.TemporaryDirectory(prefix="without-spark-") as name:
        directory = Path(name)
        wheel = build_wheel(directory / "dist")
        sizes = {which: _megabytes(_environment(directory / which, lock, wheel)) for which, lock in LOCKS.items()}
        missed = _problems(directory, directory / "without" / "bin")
    report = {f"{which}_mb": size for which, size in sizes.items()} | {"missed": missed}
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report))
    return 1 if missed else 0


def _environment(place: Path, lock: Path, wheel: Path) -> Path:
    """Make an environment from a lock, each package with its hash; in the end without what installs."""
    _call([sys.executable, "-m", "venv", str(place)])
    pip = [str(place / "bin" / "python"), "-m", "pip"]
    everything = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    [setuptools] = re.findall(r"^setuptools==[^\n]*\\\n(?:[^\n]*\\\n)*[^\n]*\n", everything, re.MULTILINE)
    own = place / "setuptools.lock"
    own.write_text(setuptools, encoding="utf-8")
    locked = ["install", "--quiet", "--require-hashes", "--no-deps", "--no-build-isolation", "-r"]
    _call([*pip, *locked, str(own)])
    _call([*pip, *locked, str(lock)])
    _call([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)])
    _call([*pip, "uninstall", "--quiet", "--yes", "setuptools", "pip"])
    own.unlink()
    return place


def _megabytes(place: Path) -> int:
    """Return what `du -sm` says, before anything has run and left compiled modules of its own."""
    return int(_call(["du", "-sm", str(place)]).split()[0])


def _problems(directory: Path, programs: Path) -> list[str]:
    """Return what is not as promised where Spark is not installed."""
    (directory / "app.py").write_text(APPLICATION, encoding="utf-8")
    python, missed = str(programs / "python"), []
    found = _call([python, "-c", f"from importlib.util import find_spec; print(*map(find_spec, {OF_SPARK}))"])
    if found.split() != ["None"] * len(OF_SPARK):
        missed.append(f"found: {found}")
    with Broker(settings=NEVER_KILLED) as broker:
        servers = broker.bootstrap_servers
        for topic in ("lines", "counts"):
            topics.create(servers, topic, partitions=2)
        topics.produce(servers, "lines", [topics.Sent(key=b"%d" % number, value=TEXT) for number in range(LINES)])
        own = {"PENSTOCK_BOOTSTRAP_SERVERS": servers, "PENSTOCK_ADMIN_ADDRESS": "off", "PATH": "", "JAVA_HOME": ""}
        environment = {**_clean(), **own}
        local = {**environment, "PENSTOCK_ENGINE": "local"}
        for what, command, variables, expected in (
            ("doctor", [str(programs / "penstock"), "doctor", "app.py:app"], local, 0),
            ("a start on Spark", [python, "app.py"], environment, 2),
            ("a start on the local engine", [python, "app.py"], local, 0),
        ):
            done = subprocess.run(
                command, cwd=directory, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
            if done.returncode != expected or (expected and CURE not in done.stderr):
                missed.append(f"{what} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        counted = {record.key: int.from_bytes(record.value or b"", "big") for record in topics.read(servers, "counts")}
        if counted != {word: count * LINES for word, count in Counter(TEXT.split()).items()}:
            missed.append(f"counted: {counted}")
    return missed


def _clean() -> dict[str, str]:
    """Return the variables without those that lead to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _call(command: list[str]) -> str:
    """Run a command and return its output; raises if it fails."""
    done = subprocess.run(command, cwd=ROOT, env=_clean(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"{' '.join(command[:6])} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
