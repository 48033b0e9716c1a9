"""`penstock lanes`: what it sends, and when it returns."""

from __future__ import annotations

import pytest

from penstock.cli import controls
from tests.unit.cli.calling import call, serving
from tests.unit.cli.test_pausing import answering

RUNS = {"application_id": "word-count", "state": "running", "lanes": 2, "shards": 8}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "_LOOK_EVERY_S", 0.01)


def test_they_are_shown() -> None:
    with serving({"/lanes": (200, RUNS)}) as admin:
        found = call("lanes", "--admin", admin.url)
    assert (found.exit_code, found.output) == (0, "word-count is running with 2 of at most 8 lanes\n")


def test_it_returns_when_the_application_runs_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, RUNS, {**RUNS, "state": "rebalancing"}, {**RUNS, "lanes": 4})
    with serving({}) as admin:
        found = call("lanes", "4", "--admin", admin.url, PENSTOCK_ADMIN_TOKEN="t")
    assert (found.exit_code, found.output) == (0, "word-count is running with 4 of at most 8 lanes\n")
    assert admin.requests[:2] == [("POST", "/lanes", "Bearer t", {"lanes": 4}), ("GET", "/lanes", "Bearer t", None)]


def test_it_fails_if_the_application_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, RUNS, {**RUNS, "state": "pending_error"})
    with serving({}) as admin:
        found = call("lanes", "4", "--admin", admin.url)
    assert found.exit_code == 2
    assert "is pending_error and did not start with 4 lanes" in found.output
