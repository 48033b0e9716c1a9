"""`make sparks`: all versions that are supported, each in its own environment; what fails with one of them is seen."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.spark.installed import is_supported
from verification.harness.processes import ROOT
from verification.sparks import __main__ as module
from verification.sparks.__main__ import IDENTITY, Row, examined, locked, main, variables

PASSED = "6 passed in 90.00s (0:01:30)"


def row(place: Path, tests: tuple[int, str] = (0, PASSED), identity: str | None = None, differences: int | None = None) -> Row:
    """What comes of a version whose tests, and topologies if there are any, end so."""
    environment, part = place / "4.3.0", place / "part.json"

    def run(arguments: Sequence[str]) -> tuple[int, str]:
        if arguments == ["-c", IDENTITY]:
            return 0, identity or f"4.3.0 {environment}/lib/pyspark\n"
        if "pytest" in arguments:
            return tests
        assert not part.exists(), "what an earlier run has reported does not count"
        if differences is not None:
            part.write_text(json.dumps({"differences": differences}), encoding="utf-8")
        return int(differences != 0), ""

    return examined("4.3.0", environment, run, part if differences is not None else None)


def test_all_that_are_locked_are_supported_and_there_is_one_that_is_installed() -> None:
    assert all(map(is_supported, locked()))
    everything = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    [installed] = re.findall(r"^pyspark==\S+ \\\n    --hash=\S+$", everything, re.MULTILINE)
    assert installed in (ROOT / "tools/sparks/pyspark.lock").read_text(encoding="utf-8")


def test_what_passes_is_ok(tmp_path: Path) -> None:
    found = row(tmp_path)
    assert (found.passed, found.failed, found.differences, found.missed) == (6, 0, None, ())
    assert re.fullmatch(r"PySpark 4\.3\.0: 6 tests passed, 0 failed \(\d+ s\): ok", str(found))
    assert "0 topologies that differ" in str(row(tmp_path, differences=0))


@pytest.mark.parametrize(
    ("tests", "failed"),
    [
        ((1, "1 failed, 5 passed in 9.00s"), 1),
        ((1, "2 errors in 9.00s"), 2),
        ((0, "5 passed, 1 skipped in 9.00s"), 1),
        ((0, "no tests ran in 0.01s"), 0),
        ((2, PASSED), 0),
    ],
)
def test_what_does_not_pass_is_missed(tmp_path: Path, tests: tuple[int, str], failed: int) -> None:
    found = row(tmp_path, tests)
    assert (found.failed, found.missed) == (failed, ("tests",))


@pytest.mark.parametrize("identity", ["4.2.0 {}/4.3.0/lib/pyspark", "4.3.0 {}/other/lib/pyspark", "4.3.0 {}/4.3.0/../spark"])
def test_another_spark_is_missed(tmp_path: Path, identity: str) -> None:
    assert "it is" in row(tmp_path, identity=identity.format(tmp_path)).missed[0]


def test_topologies_that_differ_are_missed(tmp_path: Path) -> None:
    (tmp_path / "part.json").write_text('{"differences": 0}', encoding="utf-8")
    assert row(tmp_path, differences=2).missed == ("topologies",)


def test_no_variable_brings_another_spark(tmp_path: Path) -> None:
    given = {"SPARK_HOME": "/opt/spark", "PYSPARK_PYTHON": "python2", "PATH": "/bin", "LANG": "C"}
    found = variables(given, tmp_path)
    assert found == {"PATH": os.pathsep.join([str(tmp_path / "bin"), "/bin"]), "LANG": "C", "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(("missed", "code"), [((), 0), (("tests",), 1)])
def test_the_report_has_a_row_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missed: tuple[str, ...], code: int
) -> None:
    monkeypatch.setattr(module, "examined", lambda version, *_: Row(version, "", 6, 0, None, 1.0, missed))
    assert main(["--quick", "--report", str(tmp_path / "sparks.json")]) == code
    report = json.loads((tmp_path / "sparks.json").read_text(encoding="utf-8"))
    assert [each["version"] for each in report["rows"]] == locked()
    assert report["missed"] == len(locked()) * len(missed)
    assert capsys.readouterr().out.count("PySpark 4.") == len(locked())
