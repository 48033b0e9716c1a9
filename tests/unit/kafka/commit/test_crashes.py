"""Any schedule of steps, kills, lost requests and responses, timeouts and second instances, on a model of the broker."""

from __future__ import annotations

from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import FencedError, PenstockError
from penstock.kafka.commit import CommitMetadata
from tests.unit.kafka.commit.transactions import Broker, Killed, Process

pytestmark = pytest.mark.security(30)

GOES_WRONG = st.sampled_from(["lose request", "lose response"])
DIES = st.sampled_from(["kill before", "kill after"])
some_process = st.integers(0, 2)


class Schedule(RuleBasedStateMachine):
    @initialize()
    def enter(self) -> None:
        self.broker = Broker()
        self.processes = [Process(self.broker)]

    def alive(self) -> list[Process]:
        return [process for process in self.processes if process.alive]

    def pick(self, which: int) -> Process:
        alive = self.alive()
        return alive[which % len(alive)]

    @precondition(lambda self: len(self.alive()) < 3)
    @rule()
    def start_another(self) -> None:
        self.processes.append(Process(self.broker))

    @precondition(lambda self: self.alive())
    @rule(which=some_process, times=st.integers(1, 12))
    def step(self, which: int, times: int) -> None:
        process = self.pick(which)
        for _ in range(times):
            if process.alive:
                process.step("go")

    @precondition(lambda self: self.alive())
    @rule(which=some_process, outcome=GOES_WRONG)
    def go_wrong(self, which: int, outcome: str) -> None:
        self.pick(which).step(outcome)

    @precondition(lambda self: any(process.waiting_at == "commit" for process in self.processes))
    @rule(outcome=GOES_WRONG | DIES)
    def go_wrong_at_the_commit(self, outcome: str) -> None:
        next(process for process in self.processes if process.waiting_at == "commit").step(outcome)

    @precondition(lambda self: self.alive())
    @rule(which=some_process, outcome=DIES)
    def kill(self, which: int, outcome: str) -> None:
        self.pick(which).step(outcome)

    @rule()
    def time_out(self) -> None:
        self.broker.expire()

    @precondition(lambda self: any(process.late_commits for process in self.processes))
    @rule()
    def a_lost_commit_arrives_late(self) -> None:
        process = next(process for process in self.processes if process.late_commits)
        with suppress(PenstockError):  # no process receives it
            self.broker.commit(process.late_commits.pop())

    @invariant()
    def every_record_is_visible_once_and_in_order(self) -> None:
        offset = self.broker.offset.offset if self.broker.offset else 0
        assert [position for _, position in self.broker.visible] == list(range(offset))

    @invariant()
    def every_epoch_is_committed_once_and_in_order(self) -> None:
        epochs = [epoch for epoch, _ in self.broker.visible[::4]]
        assert epochs == list(range(len(epochs)))
        if self.broker.offset:
            assert CommitMetadata.decode(self.broker.offset.metadata).epoch == epochs[-1]

    @invariant()
    def what_was_acknowledged_is_visible(self) -> None:
        visible = {epoch for epoch, _ in self.broker.visible}
        acknowledged = [epoch for process in self.processes for epoch in process.acknowledged]
        assert visible.issuperset(acknowledged)
        assert len(acknowledged) == len(set(acknowledged))

    @invariant()
    def every_process_that_ended_gave_a_reason(self) -> None:
        reasons = [process.ended_by for process in self.processes if not process.alive]
        assert all(isinstance(reason, (PenstockError, Killed)) for reason in reasons), reasons

    def teardown(self) -> None:
        for process in self.alive():
            process.step("kill before")
        successor = Process(self.broker)
        before = len(self.broker.visible)
        while len(successor.acknowledged) < 2:
            successor.step("go")
        assert len(self.broker.visible) == before + 8
        self.every_record_is_visible_once_and_in_order()
        successor.step("kill before")


def a_commit_comes_late(renews_producers: bool) -> list[int]:
    broker = Broker()
    process = Process(broker, renews_producers)
    while process.waiting_at != "commit":
        process.step("go")
    process.step("lose request")
    while not process.acknowledged or process.waiting_at != "produce":
        process.step("go")
    process.step("go")
    with suppress(FencedError):
        broker.commit(process.late_commits.pop())
    process.step("kill before")
    return [position for _, position in broker.visible]


def test_a_late_commit_is_fenced_by_a_new_producer() -> None:
    assert a_commit_comes_late(renews_producers=True) == [0, 1, 2, 3]


def test_without_a_new_producer_a_late_commit_would_split_the_next_epoch() -> None:
    assert a_commit_comes_late(renews_producers=False) == [0, 1, 2, 3, 4, 5]


def test_a_process_with_a_new_producer_ends_if_another_has_committed() -> None:
    broker = Broker()
    first = Process(broker)
    while first.waiting_at != "commit":
        first.step("go")
    first.step("lose response")
    first.step("go")
    assert (first.acknowledged, first.waiting_at) == ([0], "init")
    second = Process(broker)
    while not second.acknowledged:
        second.step("go")
    first.step("go")
    assert isinstance(first.ended_by, FencedError)
    assert [position for _, position in broker.visible] == list(range(8))
    second.step("kill before")


TestSchedules = Schedule.TestCase
TestSchedules.settings = settings(
    deadline=None, max_examples=100, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
