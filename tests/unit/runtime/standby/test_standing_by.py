"""A standby waits as long as another instance is active, whoever that is; it makes sure before that it can take over."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

import msgspec
import pytest

from penstock.engines.messages import described, raised
from penstock.errors import BrokerError, CommitError, ConfigError, FencedError, IncompatibleTopologyError, TopicError
from penstock.observation import EpochReport
from penstock.runtime.standby import standing_by as module
from penstock.runtime.standby.announcement import Announcement
from penstock.runtime.standby.beacon import Gone
from penstock.runtime.standby.standing_by import Readiness, has_lost, refuse_refused, stand_by
from penstock.runtime.standby.turn import DETECTED, FENCED, POSITION, RESTORED, Takeover
from penstock.topology.plan import Changes, Decision, Verdict
from verification.harness.processes import wait_until

ONE, TWO = (Announcement(name, "127.0.0.1", 4_000, b"k" * 32) for name in ("one", "two"))
PATIENCE_S = 20.0


class World:
    """Who is active, and what becomes of each instance that is watched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[str] = []
        self.active: Announcement | None = ONE
        self.stop = threading.Event()
        self.fates: list[Callable[[Callable[[], bool]], Gone | None]] = []
        self.failure: Exception | None = None
        self.may_check = threading.Event()
        self.may_check.set()
        monkeypatch.setattr(module, "watch", self.watch)

    def last(self) -> Announcement | None:
        return self.active

    def watch(self, found: Announcement, timeout_s: float, goes_on: Callable[[], bool]) -> Gone | None:
        self.did.append(f"watch {found.incarnation} for {timeout_s:g}")
        return self.fates.pop(0)(goes_on)

    def was_dead(self, goes_on: Callable[[], bool]) -> Gone:
        return Gone("it is gone", 5.0)

    def dies(self, goes_on: Callable[[], bool]) -> Gone:
        self.prepared(goes_on)
        return Gone("it is gone", 5.0)

    def dies_and_is_replaced(self, goes_on: Callable[[], bool]) -> Gone:
        self.prepared(goes_on)
        self.active = TWO
        return Gone("it is gone", 5.0)

    def prepared(self, goes_on: Callable[[], bool]) -> None:
        """Watch until this standby is ready."""
        wait_until("it is ready", lambda: goes_on() and "warm" in self.did, PATIENCE_S, every_s=0.005)

    def check(self) -> None:
        self.did.append("check")
        assert self.may_check.wait(PATIENCE_S)
        if self.failure is not None:
            raise self.failure

    def warm(self) -> None:
        self.did.append("warm")

    def stand_by(self) -> Gone | None:
        return stand_by(self.last, 10.0, Readiness(self.check, self.warm), self.stop)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_the_first_instance_does_not_wait(world: World) -> None:
    world.active = None
    gone = world.stand_by()
    assert gone is not None
    assert gone.why == "no other instance has announced itself"
    assert world.did == []


def test_one_that_finds_the_other_dead_takes_over_without_more_ado(world: World) -> None:
    world.fates = [world.was_dead]
    assert world.stand_by() == Gone("it is gone", 5.0)
    assert world.did == ["watch one for 10"]


def test_it_takes_over_when_the_active_instance_is_gone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fates = [world.dies]
    with caplog.at_level(logging.INFO):
        assert world.stand_by() == Gone("it is gone", 5.0)
    assert world.did == ["watch one for 10", "check", "warm"]


def test_a_check_that_hangs_does_not_delay_a_takeover(world: World) -> None:
    """The offsets that it reads cannot be read while a transaction of the dead instance is open."""
    world.may_check.clear()

    def dies_meanwhile(goes_on: Callable[[], bool]) -> Gone:
        wait_until("it checks", lambda: goes_on() and "check" in world.did, PATIENCE_S)
        return Gone("it is gone", 5.0)

    world.fates = [dies_meanwhile]
    assert world.stand_by() is not None
    world.failure = TopicError("too late to matter")
    world.may_check.set()
    assert world.did == ["watch one for 10", "check"]


def test_it_says_that_it_is_ready_when_it_is(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.may_check.clear()

    def lives(goes_on: Callable[[], bool]) -> Gone:
        assert goes_on()
        assert "standing by" not in caplog.text
        world.may_check.set()
        wait_until("it says so", lambda: goes_on() and "standing by: instance one is active" in caplog.text, PATIENCE_S)
        assert goes_on()
        return Gone("it is gone", 5.0)

    world.fates = [lives]
    with caplog.at_level(logging.INFO):
        world.stand_by()
    assert caplog.text.count("standing by: instance one is active at 127.0.0.1:4000") == 1


def test_another_standby_that_was_faster_is_watched_in_turn(world: World) -> None:
    world.fates = [world.dies_and_is_replaced, world.dies]
    assert world.stand_by() == Gone("it is gone", 5.0)
    assert world.did == ["watch one for 10", "check", "warm", "watch two for 10"]


def test_an_instance_that_was_replaced_while_it_lives_is_watched_no_longer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)

    def is_replaced(goes_on: Callable[[], bool]) -> None:
        assert goes_on()
        world.active = TWO
        assert not goes_on()

    world.fates = [is_replaced, world.dies]
    assert world.stand_by() is not None
    assert world.did[-1] == "watch two for 10"


def test_who_is_active_is_not_looked_up_at_every_tick(world: World) -> None:
    def lives(goes_on: Callable[[], bool]) -> Gone:
        world.active = TWO
        assert goes_on()
        return Gone("it is gone", 5.0)

    world.fates = [lives, world.dies]
    world.stand_by()
    assert world.did[-1] == "watch two for 10"


def test_a_stop_ends_the_wait(world: World) -> None:
    def goes_on_until_stopped(goes_on: Callable[[], bool]) -> None:
        assert goes_on()
        world.stop.set()
        assert not goes_on()

    world.fates = [goes_on_until_stopped]
    assert world.stand_by() is None


def test_after_a_reset_nobody_is_active(world: World) -> None:
    def is_reset(goes_on: Callable[[], bool]) -> None:
        world.active = None

    world.fates = [is_reset]
    gone = world.stand_by()
    assert gone is not None
    assert gone.why == "no other instance has announced itself"


def test_one_that_could_not_start_does_not_stand_by(world: World) -> None:
    world.failure = TopicError("Topics do not exist: in.")
    world.fates = [world.dies]
    with pytest.raises(TopicError, match="Topics do not exist"):
        world.stand_by()
    assert world.did == ["watch one for 10", "check"]


def test_an_instance_that_only_its_own_host_reaches_cannot_be_watched_from_another(world: World) -> None:
    world.active = msgspec.structs.replace(ONE, only_on="elsewhere")
    with pytest.raises(ConfigError, match=r"^standby_address: .* only its own host, elsewhere, reaches it\. Set standby_address"):
        world.stand_by()
    world.active = msgspec.structs.replace(ONE, only_on=socket.gethostname())
    world.fates = [world.dies]
    assert world.stand_by() is not None


def test_processes_are_kept_warm_and_a_failure_is_only_logged(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "WARM_EVERY_S", 0.01)

    def warm() -> None:
        world.did.append("warm")
        if len(world.did) == 2:
            raise BrokerError("an executor is gone")

    def lives_for_a_while(goes_on: Callable[[], bool]) -> Gone:
        wait_until("it is warmed again", lambda: goes_on() and world.did.count("warm") >= 4, PATIENCE_S)
        return Gone("it is gone", 5.0)

    monkeypatch.setattr(module, "watch", lambda found, timeout_s, goes_on: lives_for_a_while(goes_on))
    with caplog.at_level(logging.ERROR):
        assert stand_by(world.last, 10.0, Readiness(lambda: None, warm), world.stop) is not None
    assert "this standby may need longer to take over" in caplog.text
    count = world.did.count("warm")
    wait_until("it has ended", lambda: not any(thread.name == "penstock-standby" for thread in threading.enumerate()), PATIENCE_S)
    assert world.did.count("warm") <= count + 1


class TestRefusals:
    KEPT = Decision("words", Verdict.KEPT, "as it was committed")
    REFUSED = Decision("table", Verdict.REFUSED, "value was String() and is Int64()")

    def test_a_plan_without_refusals_passes(self) -> None:
        refuse_refused(Changes((self.KEPT,), (self.KEPT,)))

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            (Changes((KEPT, REFUSED), ()), "table: value was String"),
            (Changes((), (REFUSED,)), "table: value was String"),
            (Changes((KEPT,), (), ("topics are missing: in",)), "topics are missing: in"),
        ],
    )
    def test_each_reason_is_named(self, changes: Changes, reason: str) -> None:
        with pytest.raises(IncompatibleTopologyError, match=rf"This standby could not take over:\n  {reason}"):
            refuse_refused(changes)


class TestLosing:
    def test_only_one_that_was_fenced_before_its_first_commit_has_lost(self) -> None:
        assert has_lost(FencedError("another instance"), 0)
        assert not has_lost(FencedError("another instance"), 1)
        assert not has_lost(CommitError("aborted"), 0)
        assert not has_lost(RuntimeError("anything"), 0)

    def test_an_error_of_a_task_counts_too(self) -> None:
        assert has_lost(raised(described(FencedError("Another instance of 'app'"))), 0)


def report_of(number: int) -> EpochReport:
    return EpochReport(number, 0, 0.1, 5, {}, {}, (), (), False)


def test_the_steps_of_a_takeover_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([10.5, 10.75, 10.875, 11.375, 12.0])
    takeover = Takeover(10.0, lambda: next(times))
    for step in (DETECTED, FENCED, POSITION, RESTORED):
        takeover.reached(step)
    with caplog.at_level(logging.INFO):
        takeover.on_epoch(report_of(8))
        takeover.on_epoch(report_of(9))
    [line] = [record.getMessage() for record in caplog.records]
    steps = "detected 0.500 s, fenced 0.250 s, position 0.125 s, restored 0.500 s, committed 0.625 s"
    assert line == f"took over in 2.000 s, with epoch 8: {steps}"
