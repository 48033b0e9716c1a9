"""The progress of a restore, as users see it."""

from __future__ import annotations

import io
import logging

import pytest

from penstock import machine
from penstock.observation import RestoreReport
from penstock.runtime.hosting.lane_restore import RestoreProgress


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
    monkeypatch.setattr(machine, "monotonic", clock.monotonic)
    return clock


def at(left: int, total: int = 1_000) -> RestoreReport:
    return RestoreReport({0: left}, {0: total}, 1.0, is_done=False)


def test_a_terminal_has_a_bar(clock: Clock) -> None:
    terminal = Terminal()
    progress = RestoreProgress(terminal)
    clock.now += 1
    progress(at(1_000))
    clock.now += 1
    progress(at(250))
    assert terminal.getvalue().split("\r")[-1] == "restoring [" + "#" * 22 + "." * 8 + "]  75 %  375 records/s "
    progress.close()
    assert terminal.getvalue().endswith("\n")


def test_a_log_gets_a_line_periodically(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    progress = RestoreProgress(stream)
    with caplog.at_level(logging.INFO):
        progress(at(1_000))
        clock.now += 4
        progress(at(900))
        clock.now += 1
        progress(at(500))
        progress(at(400))
    progress.close()
    assert [record.getMessage() for record in caplog.records] == ["restoring: 50 %, 500 of 1000 records, 100 records/s"]
    assert not stream.getvalue()


def test_a_restore_with_nothing_to_read_shows_nothing(clock: Clock) -> None:
    terminal = Terminal()
    progress = RestoreProgress(terminal)
    clock.now += 1
    progress(at(0, total=0))
    progress.close()
    assert not terminal.getvalue()
