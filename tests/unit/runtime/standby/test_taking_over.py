"""A standby as its users see it: it waits, takes over, waits again if another one was faster, and ends if it loses later."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from penstock import App, Plugin, Topology
from penstock.config import Config
from penstock.errors import ConfigError, FencedError, NotReadyError, TopicError
from penstock.handlers import ErrorHandlers
from penstock.runtime import application as application_module
from penstock.runtime import life as life_module
from penstock.runtime.application import RunningApplication
from penstock.runtime.beyond.deliveries import Deliveries
from penstock.runtime.hooks import Hooks
from penstock.runtime.states import State
from verification.harness.processes import wait_until

PATIENCE_S = 20.0


class Attempt:
    """A start under the control of a test: what it waits for, and what becomes of it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.labels = {"application": "app", "incarnation": f"i{number}"}
        self.closers: list[Callable[[], None]] = [lambda: self.did.append("closed")]
        self.did: list[str] = []
        self.turn = threading.Event()
        self.start_failure: Exception | None = None
        self.failure: Exception | None = None
        self.progress = SimpleNamespace(epoch=7)
        self.is_done = self.is_paused = False
        self.is_idle = True
        self.program = SimpleNamespace(lanes=2, shards=8)

    def stand_by(self, stop: threading.Event) -> bool:
        self.did.append("stands by")
        while not stop.is_set():
            if self.turn.wait(0.01):
                return True
        return False

    def run(self, until: Any) -> Any:
        self.did.append("starts")
        if self.start_failure is not None:
            raise self.start_failure
        return SimpleNamespace(epochs=self, input_stream=self, publisher=self, state=self, deliveries=Mock(spec=Deliveries))

    def start(self) -> None:
        """Of the input stream."""

    def wait(self, timeout_s: float) -> bool:
        if self.failure is not None:
            raise self.failure
        threading.Event().wait(0.001)
        return False

    def recover(self, error: Exception) -> None:
        raise error

    def tick(self) -> None:
        """Of the epochs."""

    follow = check = stop = tick

    def while_idle(self, call: Callable[[], None]) -> None:
        call()


class Diary(Plugin):
    """Notes its calls."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def pre_start(self, running: RunningApplication) -> None:
        self.pages.append("pre_start")

    def post_start(self, running: RunningApplication) -> None:
        self.pages.append("post_start")

    def pre_stop(self, running: RunningApplication) -> None:
        self.pages.append("pre_stop")

    def post_stop(self, running: RunningApplication) -> None:
        self.pages.append("post_stop")

    def on_state(self, new: State, old: State) -> None:
        self.pages.append(new.value)


class Life:
    """An application, its starts, and what a plug-in sees of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attempts: list[Attempt] = []
        self.diary = Diary()
        monkeypatch.setattr(application_module, "Start", lambda *arguments: self._attempt())
        monkeypatch.setattr(life_module, "_GIVE_WAY_S", 0.0)
        config = Config(kafka={"bootstrap.servers": "nowhere:1"}, standby=True, epoch_timeout_ms=1_000)
        self.running = RunningApplication("app", Topology(), ErrorHandlers(), config, Hooks([self.diary]))

    def _attempt(self) -> Attempt:
        self.attempts.append(Attempt(len(self.attempts)))
        return self.attempts[-1]

    def until(self, state: State, attempts: int = 1) -> None:
        def is_so() -> bool:
            return self.running.state is state and len(self.attempts) == attempts

        wait_until(f"it is {state.value}", is_so, PATIENCE_S, every_s=0.005)

    def commit(self, epoch: int) -> None:
        self.running.recorder.epoch_begins(epoch, "before")
        self.running.recorder.epoch_committed(0, {}, [], [], False)


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Life:
    made = Life(monkeypatch)
    made.running.start()
    return made


def test_it_waits_and_then_starts_as_any_other(life: Life) -> None:
    life.until(State.STANDBY)
    [attempt] = life.attempts
    assert attempt.did == ["stands by"]
    with pytest.raises(NotReadyError, match="another instance is active; this one takes over when it ends"):
        life.running.store("words")
    attempt.turn.set()
    assert life.running.wait_until_running(PATIENCE_S)
    life.running.close()
    assert attempt.did == ["stands by", "starts", "closed"]
    states = ["standby", "rebalancing", "running", "post_start", "pending_shutdown", "pre_stop", "post_stop", "not_running"]
    assert life.diary.pages == ["pre_start", *states]


def test_a_stop_ends_a_standby_which_has_touched_nothing(life: Life) -> None:
    life.until(State.STANDBY)
    life.running.close()
    assert life.running.wait(PATIENCE_S)
    assert life.attempts[0].did == ["stands by", "closed"]
    assert life.running.state is State.NOT_RUNNING


@pytest.mark.parametrize("is_running", [False, True])
def test_one_that_is_fenced_before_its_first_commit_stands_by_again(
    life: Life, caplog: pytest.LogCaptureFixture, is_running: bool
) -> None:
    first = life.attempts[0]
    if is_running:
        first.turn.set()
        assert life.running.wait_until_running(PATIENCE_S)
        life.running.recorder.epoch_begins(8, "job")
        first.failure = FencedError("another instance has taken over")
    else:
        first.start_failure = FencedError("another instance has taken over")
        first.turn.set()
    with caplog.at_level(logging.WARNING):
        life.until(State.STANDBY, attempts=2)
    assert "standing by again, because another standby was faster: another instance has taken over" in caplog.text
    assert first.did[-1] == "closed"
    assert life.running.recorder.current is None  # or it would count as an epoch that hangs
    assert life.running.health.live() == ()
    assert life.running.epoch == -1
    life.attempts[1].turn.set()
    assert life.running.wait_until_running(PATIENCE_S)
    life.running.close()
    hooks = [page for page in life.diary.pages if page.startswith(("pre_", "post_"))]
    assert hooks == ["pre_start", *(["post_start", "pre_stop"] if is_running else []), "post_start", "pre_stop", "post_stop"]


def test_one_that_is_fenced_after_a_commit_ends(life: Life) -> None:
    life.attempts[0].turn.set()
    assert life.running.wait_until_running(PATIENCE_S)
    life.commit(8)
    life.attempts[0].failure = FencedError("another instance has taken over")
    with pytest.raises(FencedError):
        life.running.wait(PATIENCE_S)
    assert len(life.attempts) == 1
    assert life.running.state is State.ERROR


def test_any_other_failure_of_a_takeover_ends_it(life: Life) -> None:
    life.attempts[0].start_failure = TopicError("Topics do not exist: in.")
    life.attempts[0].turn.set()
    with pytest.raises(TopicError):
        life.running.wait(PATIENCE_S)


def test_without_standby_a_fenced_start_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Attempt(0)
    attempt.start_failure = FencedError("another instance has taken over")
    monkeypatch.setattr(application_module, "Start", lambda *arguments: attempt)
    config = Config(kafka={"bootstrap.servers": "nowhere:1"})
    with pytest.raises(FencedError):
        RunningApplication("app", Topology(), ErrorHandlers(), config, Hooks([])).start().wait(PATIENCE_S)
    assert attempt.did == ["starts", "closed"]


def test_a_bounded_run_cannot_stand_by() -> None:
    with pytest.raises(ConfigError, match=r"^standby: a run that ends at a bound cannot stand by"):
        App("app", Topology()).start(bootstrap_servers="nowhere:1", standby=True, until="latest")
