"""The watch over the slots of a host: waits end in time, the host is asked once for all of them, and only while there are any."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.engines import watching as module
from penstock.engines.watching import Wait, Watch

PATIENCE_S = 20.0
SOON_S = 0.05


class Woken:
    """A wait that notes when it ends."""

    def __init__(self, watch: Watch, within_s: float = 3 * PATIENCE_S, patience_s: float = 3 * PATIENCE_S) -> None:
        self.ended = threading.Event()
        self.wait = Wait(self.ended.set, time.monotonic() + within_s, patience_s)
        watch.begin(self.wait)

    @property
    def reason(self) -> str:
        assert self.ended.wait(PATIENCE_S)
        assert self.wait.is_late != self.wait.is_in_vain
        return "late" if self.wait.is_late else "gone"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", SOON_S)


def watching() -> int:
    return sum(thread.name == "penstock-watch" for thread in threading.enumerate())


def test_each_wait_ends_in_its_time() -> None:
    watch = Watch()
    early, late, never = Woken(watch, 0.1), Woken(watch, 1.5), Woken(watch)
    assert early.reason == "late"
    assert not late.ended.is_set()
    assert late.reason == "late"
    assert not never.ended.is_set()
    watch.end(never.wait)


def test_a_sign_of_life_prolongs_the_patience_but_not_the_deadline() -> None:
    watch = Watch()
    patient, limited = Woken(watch, patience_s=0.4), Woken(watch, 0.4, patience_s=0.4)
    for _ in range(10):
        time.sleep(SOON_S)
        patient.wait.heard()
        limited.wait.heard()
    assert limited.reason == "late"
    assert not patient.ended.is_set()
    assert patient.reason == "late"


def test_a_host_is_asked_once_for_all_waits_that_have_lasted_a_look() -> None:
    asked: list[float] = []
    is_asked, answer = threading.Event(), threading.Event()

    def is_there() -> bool:
        asked.append(time.monotonic())
        is_asked.set()
        answer.wait(PATIENCE_S)
        return False

    watch = Watch(is_there)
    waits = [Woken(watch) for _ in range(5)]
    assert is_asked.wait(PATIENCE_S)
    done, new = waits.pop(), Woken(watch)
    watch.end(done.wait)
    answer.set()
    assert {wait.reason for wait in waits} == {"gone"}
    assert not done.ended.is_set()
    assert new.reason == "gone"  # by the next look
    assert len(asked) == 2


def test_what_is_answered_at_once_asks_no_host_and_leaves_no_thread() -> None:
    asked: list[bool] = []
    before = watching()

    def is_there() -> bool:
        asked.append(True)
        return True

    watch = Watch(is_there)
    end = time.monotonic() + 6 * SOON_S
    while time.monotonic() < end:
        wait = Woken(watch)
        time.sleep(SOON_S / 50)
        watch.end(wait.wait)
        assert watching() <= before + 1
    assert asked == []
    time.sleep(4 * SOON_S)
    assert watching() <= before


def test_deadlines_hold_even_if_the_host_cannot_be_asked(caplog: pytest.LogCaptureFixture) -> None:
    def is_there() -> bool:
        raise RuntimeError("unknown")

    assert Woken(Watch(is_there), 5 * SOON_S).reason == "late"
    assert "cannot ask a host whether it is there" in caplog.text
