"""How far a restore has come, as people see it."""

from __future__ import annotations

import io
import logging

import pytest

from penstock.running import restore_progress
from penstock.running.restore_progress import RestoreProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(restore_progress, "time", clock)
    return clock


def test_it_is_measured_over_all_lanes_against_the_most_that_was_left(clock: Clock) -> None:
    progress = RestoreProgress(io.StringIO())
    progress({0: 100})
    progress({0: 50, 1: 300})
    progress({0: 0, 1: 100})
    assert (progress.total, progress.left) == (400, 100)


def test_a_terminal_has_a_bar(clock: Clock) -> None:
    terminal = Terminal()
    progress = RestoreProgress(terminal)
    clock.now += 1
    progress({0: 1_000})
    clock.now += 1
    progress({0: 250})
    assert terminal.getvalue().split("\r")[-1] == "restoring [" + "#" * 22 + "." * 8 + "]  75 %  375 records/s "
    progress.close()
    assert terminal.getvalue().endswith("\n")


def test_a_log_gets_a_line_now_and_then(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    progress = RestoreProgress(stream)
    with caplog.at_level(logging.INFO):
        progress({0: 1_000})
        clock.now += 4
        progress({0: 900})
        clock.now += 1
        progress({0: 500})
        progress({0: 400})
    progress.close()
    assert [record.getMessage() for record in caplog.records] == ["restoring: 50 %, 500 of 1000 records, 100 records/s"]
    assert not stream.getvalue()


def test_a_restore_with_nothing_to_read_shows_nothing(clock: Clock) -> None:
    terminal = Terminal()
    progress = RestoreProgress(terminal)
    clock.now += 1
    progress({0: 0, 1: 0})
    progress.close()
    assert not terminal.getvalue()
