"""Worlds are the same each time, agree with the test driver, and show a bug of what drives an application."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from penstock.kafka.first_writes import FirstWrites
from verification.harness.processes import ROOT
from verification.simulation import mutants, session
from verification.simulation.planted import MUTANTS
from verification.simulation.session import Place, Verdict, as_test, judge

WORLDS = [Place(20, number, scenario, 25) for number, scenario in enumerate(("split and merge", "sessions", "counts of counts"))]


@pytest.mark.parametrize("place", WORLDS, ids=[place.scenario or "" for place in WORLDS])
def test_a_world_agrees_with_the_test_driver_and_is_the_same_each_time(place: Place) -> None:
    verdict = judge(place)
    assert (verdict.violation, verdict.lives > 0) == (None, True)
    assert judge(place) == verdict


def test_a_bug_of_the_driver_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FirstWrites, "among", lambda self, rows, topics: np.empty(0, np.int64))
    found = (judge(Place(20, number, "split and merge", 25)).violation for number in range(12))
    assert any("differ" in violation for violation in found if violation)


def test_a_world_has_a_name_and_a_violation_is_a_test() -> None:
    for place in (Place(3, 4), Place(3, 4, "sessions", 25)):
        assert Place.read(str(place)) == place
    text = as_test(Verdict(Place(3, 4, "sessions", 25), "sessions", 25, 2, 1, {}, "differs"))
    assert "judge(Place(3, 4, 'sessions', 25)).violation is None" in text
    compile(text, "test", "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_each_bug_can_be_planted(mutant: object, tmp_path: Path) -> None:
    [chosen] = [each for each in MUTANTS if each is mutant]
    text = (ROOT / "src" / "penstock" / chosen.module).read_text(encoding="utf-8")
    assert text.count(chosen.old) == 1
    compile(text.replace(chosen.old, chosen.new), chosen.module, "exec")


@pytest.mark.slow  # begins processes
def test_a_session_reports_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "REPORT", tmp_path / "simulate.json")
    assert session.main(seed=4, lives=3, seconds=None, show=3) == 0
    report = json.loads(session.REPORT.read_text(encoding="utf-8"))
    assert (report["seed"], report["violations"], report["lives"] >= 3) == (4, 0, True)


@pytest.mark.slow  # begins processes
def test_a_planted_bug_is_caught_by_the_worlds_of_a_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "REPORT", tmp_path / "simulate.json")
    assert mutants.plant_all(5, "offsets are one record behind")
    assert "1 planted, 1 caught" in capsys.readouterr().out
