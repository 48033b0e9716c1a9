"""An application from start to shutdown: its states, what ends it, and that everything is closed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from penstock import Topology, machine
from penstock.config import Config
from penstock.errors import BrokerError, ConfigError, NotReadyError, PenstockError, StalledError, TopicError
from penstock.handlers import ErrorHandlers
from penstock.observation import health as health_module
from penstock.runtime import application as application_module
from penstock.runtime import life as life_module
from penstock.runtime.application import RunningApplication
from penstock.runtime.beyond.deliveries import Deliveries
from penstock.runtime.hooks import Hooks
from penstock.runtime.states import State
from verification.harness.processes import wait_until

PATIENCE_S = 20


class Stage:
    """The parts of a started application, controlled by a test."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.closers: list[Callable[[], None]] = []
        self.labels = {"application": "app"}
        self.progress = SimpleNamespace(epoch=7)
        self.is_done = False
        self.is_idle = True
        self.is_paused = False
        self.start_failure: BaseException | None = None
        self.end: BaseException | bool = False
        self.found: TopicError | None = None
        self.recovers = False
        self.may_start = threading.Event()
        self.may_start.set()
        self.deliveries = Mock(spec=Deliveries)
        self.program = SimpleNamespace(lanes=2, shards=8)

    def run(self, until: Any) -> Any:
        """`Start.run`."""
        self.did.append(f"start until {until}")
        self.closers += [lambda: self.did.append("close first"), lambda: self.did.append("close second")]
        assert self.may_start.wait(PATIENCE_S)
        if self.start_failure is not None:
            raise self.start_failure
        return SimpleNamespace(epochs=self, input_stream=self, publisher=self, state=self, deliveries=self.deliveries)

    def start(self) -> None:
        self.did.append("stream")

    def wait(self, timeout_s: float) -> bool:
        time.sleep(0.001)
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end

    def follow(self) -> None:
        if self.found is not None:
            raise self.found

    def recover(self, error: Exception) -> None:
        self.did.append(f"recover from {error}")
        if not self.recovers:
            raise error
        self.end = False

    def tick(self) -> None:
        if "tick" not in self.did:
            self.did.append("tick")

    def while_idle(self, call: Callable[[], None]) -> None:
        call()

    def check(self) -> None:
        self.did.append("check")

    def stop(self) -> None:
        self.did.append("stop")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()

    def start(application_id: str, topology: Topology, handlers: ErrorHandlers, config: Config, recorder: Any) -> Stage:
        stage.program = SimpleNamespace(lanes=config.lanes or 2, shards=8)
        return stage

    monkeypatch.setattr(application_module, "Start", start)
    return stage


def started(stage: Stage, states: list[State] | None = None, until: Any = None) -> RunningApplication:
    config = Config(kafka={"bootstrap.servers": "nowhere:1"})
    listeners = () if states is None else (lambda new, old: states.append(new),)
    return RunningApplication("app", Topology(), ErrorHandlers(), config, Hooks([]), until, listeners).start()


def until_running(running: RunningApplication) -> None:
    assert running.wait_until_running(PATIENCE_S)
    assert running.state is State.RUNNING


def test_it_runs_until_a_stop_is_requested(stage: Stage) -> None:
    states: list[State] = []
    running = started(stage, states, until="latest")
    until_running(running)
    assert not running.wait(0.01)
    running.stop()
    assert running.wait(PATIENCE_S)
    assert states == [State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert stage.did == ["start until latest", "stream", "tick", "stop", "close second", "close first"]


def test_it_ends_when_its_bound_is_reached(stage: Stage) -> None:
    stage.is_done = True
    running = started(stage)
    assert running.wait(PATIENCE_S)
    assert running.state is State.NOT_RUNNING


def test_a_stop_ends_the_wait_for_deliveries(stage: Stage) -> None:
    stage.is_done = True
    stage.deliveries.finish = lambda stop: stop.wait(2 * PATIENCE_S)  # the target stays down
    running = started(stage, until="latest")
    assert not running.wait(0.2)
    running.stop()
    assert running.wait(PATIENCE_S)


def test_it_starts_again_with_another_number_of_lanes(stage: Stage) -> None:
    states: list[State] = []
    with started(stage, states) as running:
        assert running.lanes is None or running.lanes == 2
        until_running(running)
        running.change_lanes(2)
        assert states == [State.REBALANCING, State.RUNNING], "it has two already"
        del stage.did[:]
        running.change_lanes(5)
        wait_until("it runs with five", lambda: running.lanes == 5 and running.state is State.RUNNING, PATIENCE_S)
        assert running.config.lanes == 5
        done = [what for what in stage.did if what != "tick"]
        assert done[:5] == ["stop", "close second", "close first", "start until None", "stream"]
        assert states == [State.REBALANCING, State.RUNNING] * 2


def test_the_last_request_for_lanes_decides(stage: Stage) -> None:
    with started(stage) as running:
        until_running(running)
        stage.may_start.clear()
        running.change_lanes(5)
        wait_until("it starts again", lambda: running.state is State.REBALANCING, PATIENCE_S)
        running.change_lanes(2)  # the number that it still has, while five are on their way
        stage.may_start.set()
        wait_until("it runs with two", lambda: running.lanes == running.config.lanes == 2, PATIENCE_S)


def test_a_request_for_the_current_lanes_withdraws_a_change_that_has_not_begun(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_in_epoch, may_end = threading.Semaphore(0), threading.Semaphore(0)

    def epoch() -> None:
        is_in_epoch.release()
        assert may_end.acquire(timeout=PATIENCE_S)

    monkeypatch.setattr(stage, "follow", epoch)
    with started(stage) as running:
        assert is_in_epoch.acquire(timeout=PATIENCE_S)
        running.change_lanes(5)
        running.change_lanes(2)
        may_end.release()
        assert is_in_epoch.acquire(timeout=PATIENCE_S), "another epoch has begun"
        assert (running.lanes, running.state, stage.did.count("start until None")) == (2, State.RUNNING, 1)
        running.stop()
        may_end.release()


@pytest.mark.parametrize("lanes", [-1, 0, 9])
def test_as_many_lanes_as_shards_are_possible(stage: Stage, lanes: int) -> None:
    with started(stage) as running:
        until_running(running)
        with pytest.raises(ConfigError, match=f"lanes: {lanes} is not possible. .* at most as many as its 8 shards"):
            running.change_lanes(lanes)


def test_lanes_are_not_changed_before_it_runs_or_in_a_bounded_run(stage: Stage) -> None:
    stage.may_start.clear()
    with started(stage) as running:
        with pytest.raises(ConfigError, match="its shards, which are known when it runs"):
            running.change_lanes(3)
        stage.may_start.set()
    with started(stage, until="latest") as running, pytest.raises(ConfigError, match="a run that ends at a bound"):
        running.change_lanes(3)


def test_the_epoch_is_the_committed_one(stage: Stage) -> None:
    stage.may_start.clear()
    with started(stage) as running:
        assert running.epoch == -1
        stage.may_start.set()
        until_running(running)
        assert running.epoch == 7


def test_the_end_of_a_block_is_the_end_of_the_application(stage: Stage) -> None:
    with started(stage) as running:
        until_running(running)
    assert running.state is State.NOT_RUNNING
    assert stage.did[-1] == "close first"


def test_it_can_be_stopped_before_it_runs(stage: Stage) -> None:
    stage.may_start.clear()
    running = started(stage)
    running.stop()
    stage.may_start.set()
    assert running.wait(PATIENCE_S)
    assert "tick" not in stage.did


def test_wait_raises_the_error_of_a_failed_start(stage: Stage) -> None:
    states: list[State] = []
    stage.start_failure = TopicError("Topics do not exist: in.")
    running = started(stage, states)
    with pytest.raises(TopicError, match="Topics do not exist"):
        running.wait_until_running(PATIENCE_S)
    with pytest.raises(TopicError, match="Topics do not exist"):
        running.wait(PATIENCE_S)
    assert states == [State.REBALANCING, State.PENDING_ERROR, State.ERROR]
    assert stage.did[-2:] == ["close second", "close first"]


def test_an_error_of_the_stream_ends_the_application(stage: Stage) -> None:
    running = started(stage)
    until_running(running)
    stage.end = BrokerError("no broker")
    with pytest.raises(BrokerError):
        running.wait(PATIENCE_S)
    assert running.state is State.ERROR


def test_a_recoverable_error_does_not_end_the_application(stage: Stage) -> None:
    stage.recovers, stage.end = True, RuntimeError("records are gone")
    running = started(stage)
    until_running(running)
    running.stop()
    assert running.wait(PATIENCE_S)
    assert "recover from records are gone" in stage.did


def test_a_topic_that_is_gone_ends_the_application(stage: Stage) -> None:
    stage.found = TopicError("Topic 'in' was deleted while the application was running.")
    running = started(stage)
    with pytest.raises(TopicError, match="was deleted while the application was running"):
        running.wait(PATIENCE_S)


def test_a_stream_that_ends_by_itself_is_a_failure(stage: Stage) -> None:
    running = started(stage)
    until_running(running)
    stage.end = True
    with pytest.raises(PenstockError, match="The input has ended unexpectedly"):
        running.wait(PATIENCE_S)
    assert running.state is State.ERROR


def test_a_foreign_error_becomes_a_penstock_error(stage: Stage) -> None:
    stage.start_failure = RuntimeError("from the depths")
    running = started(stage)
    with pytest.raises(PenstockError, match="from the depths") as failed:
        running.wait(PATIENCE_S)
    assert failed.value.__cause__ is stage.start_failure


def test_everything_is_closed_even_if_a_closer_fails(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    running = started(stage)
    until_running(running)

    def fails() -> None:
        raise OSError("busy")

    stage.closers.append(fails)
    with caplog.at_level(logging.ERROR):
        running.close()
    assert stage.did[-2:] == ["close second", "close first"]
    assert "closing failed during the shutdown" in caplog.text
    assert running.state is State.NOT_RUNNING


def test_the_publisher_is_checked_while_there_is_no_input(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10**6))
    monkeypatch.setattr(machine, "monotonic", lambda: float(next(now)))
    running = started(stage)
    until_running(running)
    deadline = time.monotonic() + PATIENCE_S
    while "check" not in stage.did:
        assert time.monotonic() < deadline
    running.close()


class TestStalling:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(life_module, "_GRACE_S", 0.1)
        monkeypatch.setattr(health_module, "RESTORE_S", 1.0)

    def impatiently_started(self) -> RunningApplication:
        config = Config(kafka={"bootstrap.servers": "nowhere:1"}, epoch_timeout_ms=1_000)
        return RunningApplication("app", Topology(), ErrorHandlers(), config, Hooks([])).start()

    @pytest.mark.security(11)
    def test_an_epoch_that_hangs_is_reported_and_then_ends_the_application(self, stage: Stage) -> None:
        running = self.impatiently_started()
        until_running(running)
        ended: list[str] = []
        running.at_end(lambda: ended.append("end"))
        running.recorder.epoch_begins(8, "job")
        assert not running.health.live()
        with pytest.raises(StalledError, match=r"Epoch 8 has been in phase 'job' for more than 1 s .*max_epoch_records"):
            running.wait(PATIENCE_S)
        assert [problem.what for problem in running.health.live()] == ["failed", "stalled"]
        assert (running.state, ended) == (State.ERROR, ["end"])
        assert "stop" not in stage.did  # nothing is asked of what hangs
        stage.end = BrokerError("no broker")  # what hung comes back to life, and is not heard any more
        running._life._threads[0].join(PATIENCE_S)
        assert running.state is State.ERROR
        with pytest.raises(StalledError):
            running.wait()

    @pytest.mark.security(11)
    def test_a_restore_that_stands_still_ends_the_application_and_says_where(self, stage: Stage) -> None:
        running = self.impatiently_started()
        until_running(running)
        restores = running.recorder.restores
        with restores.of(2):
            for offset in range(8):
                time.sleep(0.2)
                restores.advanced(1, f"reading app-counts-changelog-3 at offset {offset} on host-b")
            restores.advanced(0, "")
            assert not running.health.live()
            place = r"lane 1: reading app-counts-changelog-3 at offset 7 on host-b\. Check the disk"
            with pytest.raises(StalledError, match=rf"The restore of 1 lanes has not advanced for more than 1 s: .*{place}"):
                running.wait(PATIENCE_S)
            assert [problem.what for problem in running.health.live()] == ["failed", "stalled"]

    def test_an_epoch_that_ends_in_time_does_not(self, stage: Stage) -> None:
        with self.impatiently_started() as running:
            until_running(running)
            for number in range(4):
                running.recorder.epoch_begins(number, "job")
                time.sleep(0.4)
                running.recorder.epoch_committed(0, {}, (), (), is_sampled=False)
            assert running.state is State.RUNNING


def test_a_failed_closer_does_not_prevent_the_others(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    running = started(stage)
    ended: list[str] = []

    def fails() -> None:
        raise OSError("busy")

    running.at_end(fails)
    running.at_end(lambda: ended.append("end"))
    running.close()
    assert (ended, running.state) == (["end"], State.NOT_RUNNING)
    assert "closing failed during the shutdown" in caplog.text


def test_it_can_be_queried_only_while_it_runs(stage: Stage) -> None:
    stage.may_start.clear()
    running = started(stage)
    for ask in (running.store, running.table, running.sql, lambda name: running.query(name, None)):
        with pytest.raises(NotReadyError, match="Cannot query 'app' now"):
            ask("words")
    stage.may_start.set()
    until_running(running)
    running.close()
    with pytest.raises(NotReadyError, match=r"Cannot query 'app' now: .*not_running"):
        running.store("words")


class TestPause:
    @pytest.fixture
    def running(self, stage: Stage) -> Iterator[RunningApplication]:
        with started(stage) as running:
            until_running(running)
            yield running

    def test_pausing_and_resuming_twice_is_as_once(self, stage: Stage, running: RunningApplication) -> None:
        running.resume()
        assert (running.is_paused, running.is_at_rest, stage.is_paused) == (False, False, False)
        for _ in range(2):
            running.pause()
            assert (running.is_paused, running.is_at_rest, stage.is_paused) == (True, True, True)
        assert running.state is State.RUNNING
        for _ in range(2):
            running.resume()
            assert (running.is_paused, stage.is_paused) == (False, False)

    def test_it_is_at_rest_when_the_epochs_that_have_begun_are_committed(self, stage: Stage, running: RunningApplication) -> None:
        stage.is_idle = False
        running.pause()
        assert running.wait_until_paused(0.1) is False
        assert (running.is_paused, running.is_at_rest) == (True, False)
        threading.Timer(0.1, lambda: setattr(stage, "is_idle", True)).start()
        assert running.wait_until_paused(PATIENCE_S) is True

    def test_waiting_ends_if_it_is_resumed_or_was_never_paused(self, stage: Stage, running: RunningApplication) -> None:
        assert running.wait_until_paused() is False
        stage.is_idle = False
        running.pause()
        threading.Timer(0.1, running.resume).start()
        assert running.wait_until_paused() is False

    def test_waiting_ends_with_the_application(self, stage: Stage) -> None:
        stage.is_idle = False
        running = started(stage)
        until_running(running)
        running.pause()
        stage.end = BrokerError("no broker")
        assert running.wait_until_paused() is False
        with pytest.raises(BrokerError):
            running.wait(PATIENCE_S)

    def test_a_pause_during_the_start_begins_with_the_first_epoch(self, stage: Stage) -> None:
        stage.may_start.clear()
        with started(stage) as running:
            running.pause()
            assert (running.is_paused, running.is_at_rest, stage.is_paused) == (True, False, False)
            stage.may_start.set()
            until_running(running)
            assert (running.is_at_rest, stage.is_paused) == (True, True)

    def test_a_resumed_start_is_not_paused(self, stage: Stage) -> None:
        stage.may_start.clear()
        with started(stage) as running:
            running.pause()
            running.resume()
            stage.may_start.set()
            until_running(running)
            assert stage.is_paused is False

    def test_it_can_be_stopped(self, running: RunningApplication) -> None:
        running.pause()
        running.stop()
        assert running.wait(PATIENCE_S)
        assert running.state is State.NOT_RUNNING

    def test_topics_and_the_publisher_are_still_looked_after(self, stage: Stage, running: RunningApplication) -> None:
        running.pause()
        stage.did.clear()
        wait_until("the publisher is checked", lambda: "check" in stage.did, PATIENCE_S)
        assert "tick" in stage.did, "`Epochs.tick` raises failures, and begins nothing"
