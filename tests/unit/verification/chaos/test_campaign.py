"""The campaign is complete, and its report says what happened."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from verification.chaos import __main__ as door
from verification.chaos.campaign import GuardReport, Report, RowReport
from verification.chaos.guards import GUARDS
from verification.chaos.rows import GUARDED_BY, QUICK_GUARDS, ROWS, deliveries, kills, letters
from verification.chaos.rows.row import FULL, QUICK
from verification.cluster import rows as cluster
from verification.evolution import __main__ as evolution
from verification.sources import __main__ as sources

SOURCES = Path(__file__).resolve().parents[4] / "src" / "penstock"
GOOD = RowReport("row", 3, 3, 3, 9.5, 0, [], [-9, 0], 100, 400, 60.0)
RED = replace(GOOD, name="red", kills=1, violations=2, details=["lost in echo of k1: 1 of 3"])


def test_every_fault_point_of_the_product_has_its_own_row() -> None:
    found = {name for path in SOURCES.rglob("*.py") for name in re.findall(r'\bpoint\("([a-z_.]+)"\)', path.read_text())}
    found -= {"restore.copied"}  # of a copied lane: tests/unit/epochs/test_copies.py
    found -= {"reset.offsets", "reset.changelogs"}  # those of a reset: tests/jvm/runtime/test_command_line.py
    found -= {
        "restoration.begun",
        "restoration.chunk",
        "restoration.offsets",
    }  # of a restore: tests/jvm/runtime/test_savepoints.py
    names = {row.name for row in ROWS if FULL in row.campaigns}
    assert len(found) >= 14
    others = {point.partition(":")[0] for point in (*sources.FAULTS, *evolution.FAULTS, *evolution.RENAMES)}
    of_writers = {*cluster.WRITER_POINTS, *cluster.DRIVER_POINTS}
    assert found <= {*names, *letters.POINTS, *deliveries.POINTS, *others, *of_writers}
    assert {"dlq-replay", "dlq-replay-into-nodes"} <= names  # which dies at those of a replay


def test_names_are_unique_and_guards_have_rows() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
    assert GUARDED_BY.keys() | cluster.GUARDED_BY.keys() == GUARDS.keys()
    assert set(GUARDED_BY.values()) <= set(names)
    assert set(QUICK_GUARDS) <= GUARDS.keys()
    assert len(GUARDS) >= 6


@pytest.mark.parametrize("guard", ["write_ids", "read_committed"])
def test_what_a_guard_replaces_is_there(guard: str) -> None:
    """In a process of its own, because nothing turns a guard on again."""
    code = f"from verification.chaos.guards import turn_off; turn_off({guard!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_quick_campaign_kills_at_every_point() -> None:
    assert any(row.run is kills.one_after_the_other and QUICK in row.campaigns for row in ROWS)
    assert len({*kills.PER_EPOCH, *kills.PER_LANE, *kills.PER_SECTION, *kills.AT_THE_START}) + 3 >= 15


@pytest.mark.parametrize(
    ("rows", "guards", "is_good"),
    [
        ([GOOD], [], True),
        ([GOOD, RED], [], False),
        ([GOOD], [GuardReport("fence", "row", True, [])], True),
        ([GOOD], [GuardReport("fence", "row", False, [])], False),
    ],
)
def test_a_report_is_good_without_violations_and_with_guards_that_matter(
    rows: list[RowReport], guards: list[GuardReport], is_good: bool, tmp_path: Path
) -> None:
    report = Report(1, rows, guards)
    report.write(tmp_path / "reports" / "chaos.json")
    written = json.loads((tmp_path / "reports" / "chaos.json").read_text())
    assert written["is_good"] is is_good is report.is_good
    assert written["kills"] == sum(row.kills for row in rows)
    assert written["violations"] == sum(row.violations for row in rows)
    assert written["rows"][0].keys() >= {"name", "fired", "recovered_s", "violations"}
    assert [guard.keys() >= {"name", "went_red"} for guard in written["guards_off"]] == [True] * len(guards)


def test_the_command_lists_rows_and_guards(capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert {"random-kills", "without fence: second-instance"} <= set(listed)
