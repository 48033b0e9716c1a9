"""`penstock pause` and `penstock resume`: what they send, and when they return."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli import controls
from tests.unit.cli.calling import FakeAdmin, call, serving

PAUSED = {"application_id": "word-count", "state": "running", "paused": True, "at_rest": True}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "_LOOK_EVERY_S", 0.01)


def answering(monkeypatch: pytest.MonkeyPatch, *reports: dict[str, Any]) -> None:
    """Let the server answer with these reports, one after the other."""
    left = list(reports)

    def answer(admin: FakeAdmin, method: str, path: str, token: str | None, body: bytes) -> tuple[int, bytes]:
        admin.answers[path] = (200, left.pop(0))
        return original(admin, method, path, token, body)

    original = FakeAdmin.answer
    monkeypatch.setattr(FakeAdmin, "answer", answer)


def test_pause_returns_when_the_epochs_that_have_begun_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {**PAUSED, "at_rest": False}, {**PAUSED, "at_rest": False}, PAUSED)
    with serving({}) as admin:
        found = call("pause", "--admin", admin.url, PENSTOCK_ADMIN_TOKEN="t")
    assert found.exit_code == 0, found.output
    assert found.output == "word-count is paused, and everything that it has read is committed\n"
    assert admin.requests == [
        ("POST", "/pause", "Bearer t", {}),
        ("GET", "/pause", "Bearer t", None),
        ("GET", "/pause", "Bearer t", None),
    ]


def test_pause_fails_if_someone_resumes_the_application_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {**PAUSED, "at_rest": False}, {**PAUSED, "paused": False, "at_rest": False})
    with serving({}) as admin:
        found = call("pause", "--admin", admin.url)
    assert found.exit_code == 2
    assert "was resumed before" in found.output


def test_resume() -> None:
    with serving({"/resume": (200, {**PAUSED, "paused": False, "at_rest": False})}) as admin:
        found = call("resume", "--admin", admin.url)
    assert (found.exit_code, found.output) == (0, "word-count is running, and not paused\n")
    assert admin.requests == [("POST", "/resume", None, {})]


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_refusal_says_how_to_give_the_token(command: str) -> None:
    with serving({f"/{command}": (403, {"error": "no"})}) as admin:
        found = call(command, "--admin", admin.url)
    assert found.exit_code == 2
    assert "PENSTOCK_ADMIN_TOKEN" in found.output
