"""`python -m verification.evolution`: a large store is migrated and renamed while it is killed; plans are compared with runs.

Writes reports/evolution.json and prints its figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from struct import Struct

from verification.chaos.application import Application
from verification.evolution.app import CONVERTED, RENAMED
from verification.harness import topics
from verification.harness.broker import NEVER_KILLED, Broker
from verification.operations import plan_cases

COMMAND = (sys.executable, "-m", "verification.evolution.app")
NAME, PARTITIONS, TIMEOUT_S = "evolution", 4, 300
FAULTS = (
    "migration.before_write:1",
    "migration.before_commit:1",
    "migration.after_commit:1",
    "migration.before_commit:3",
    "barrier.before_commit:2",
    "migration.after_commit:4",
    "barrier.after_produce:1",
    "migration.before_write:4",
    "barrier.after_commit:2",
    "barrier.mid_produce:3",
)
"""Where it is killed, one after the other."""
RENAMES = ("renaming.begun:1", "renaming.chunk:2", "barrier.mid_produce:2", "renaming.copied:1")
"""Where it is killed while the store gets another name."""
_long = Struct(">q")


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit code is 0 if every value is converted once, each fault has fired, and each plan was right."""
    parser = argparse.ArgumentParser(prog="python -m verification.evolution")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--without-plans", action="store_true", help="only the migration")
    parser.add_argument("--report", type=Path, default=Path("reports/evolution.json"))
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="evolution-") as directory, Broker(settings=NEVER_KILLED) as broker:
        kills, refused, seconds = _migrate(broker, Path(directory), options.rows)
        rows, wrong = _check(broker, "totals", options.rows)
        kills += _rename(broker, Path(directory))
        copied, different = _check(broker, "amounts", options.rows)
        right, of = (0, 0) if options.without_plans else plan_cases.run(broker, Path(directory) / "plans")
    report = {
        "rows": rows,
        "wrong": wrong,
        "copied": copied,
        "wrong_copies": different,
        "kills": kills,
        "old_version_refused": refused,
        "last_start_s": round(seconds, 1),
        "plans": {"right": right, "of": of},
        "seconds": round(time.monotonic() - began),
    }
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report))
    is_killed = kills == len(FAULTS) + len(RENAMES)
    is_whole = not wrong and not different and rows == copied == options.rows
    return 0 if is_whole and is_killed and refused and right == of else 1


def _migrate(broker: Broker, directory: Path, rows: int) -> tuple[int, bool, float]:
    """Fill the store with the first version, then start the second one and kill it again and again.

    Returns the kills, whether the first version refuses to start in between, and the seconds of the last start.
    """
    topics.create(broker.bootstrap_servers, f"{NAME}-in", PARTITIONS)
    _produce(broker, range(rows))
    application = Application(directory / NAME, _environment(broker, directory), COMMAND)
    application.run(TIMEOUT_S, EVOLUTION_VERSION="1")
    kills, refused = 0, False
    for number, fault in enumerate(FAULTS):
        kills += application.dies_at(fault, TIMEOUT_S, EVOLUTION_VERSION="2")
        if number == len(FAULTS) // 2:
            application.start(EVOLUTION_VERSION="1")
            ended = application.wait(TIMEOUT_S)
            refused = ended != 0 and "its migration to version 2 is not complete" in application.log.read_text(errors="replace")
    _produce(broker, range(0, rows, 100))
    began = time.monotonic()
    application.run(TIMEOUT_S, EVOLUTION_VERSION="2")
    seconds = time.monotonic() - began
    application.close()
    return kills, refused, seconds


def _rename(broker: Broker, directory: Path) -> int:
    """Start the version in which the store has another name, and kill it again and again; return the kills."""
    application = Application(directory / f"{NAME}-renamed", _environment(broker, directory), COMMAND)
    kills = sum(application.dies_at(fault, TIMEOUT_S, EVOLUTION_VERSION=str(RENAMED)) for fault in RENAMES)
    application.run(TIMEOUT_S, EVOLUTION_VERSION=str(RENAMED))
    application.close()
    return kills


def _check(broker: Broker, store: str, rows: int) -> tuple[int, int]:
    """The number of rows of the store, and of those that are wrong."""
    found: dict[bytes, bytes | None] = {}
    for record in topics.read(broker.bootstrap_servers, f"{NAME}-{store}-changelog"):
        assert record.key is not None
        found[record.key] = record.value
    wrong = 0
    for number in range(rows):
        value = found.get(b"k%d" % number)
        records = 2 if number % 100 == 0 else 1
        expected = {"count": records, "sum": records * number + CONVERTED}
        wrong += value is None or json.loads(value[_long.size :]) != expected
    return len(found), wrong


def _produce(broker: Broker, numbers: range) -> None:
    sent = [topics.Sent(key=b"k%d" % number, value=_long.pack(number)) for number in numbers]
    topics.produce(broker.bootstrap_servers, f"{NAME}-in", sent)


def _environment(broker: Broker, directory: Path) -> dict[str, str]:
    return {
        "EVOLUTION_NAME": NAME,
        "PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "PENSTOCK_STATE_DIR": str(directory / NAME / "state"),
        "PENSTOCK_ADMIN_ADDRESS": "127.0.0.1:0",
        "PENSTOCK_LANES": "2",
        "PENSTOCK_ENGINE": "local",
    }


if __name__ == "__main__":
    sys.exit(main())
