"""The states of an application: which may follow which, and the calls of listeners."""

from __future__ import annotations

import logging
import threading

import pytest

from penstock.runtime.states import State, StateMachine

WAYS_TO = {
    State.CREATED: [],
    State.STANDBY: [State.STANDBY],
    State.REBALANCING: [State.REBALANCING],
    State.RUNNING: [State.REBALANCING, State.RUNNING],
    State.PENDING_SHUTDOWN: [State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN],
    State.PENDING_ERROR: [State.PENDING_ERROR],
    State.NOT_RUNNING: [State.PENDING_SHUTDOWN, State.NOT_RUNNING],
    State.ERROR: [State.PENDING_ERROR, State.ERROR],
}
ALLOWED = {
    (State.CREATED, State.STANDBY),
    (State.CREATED, State.REBALANCING),
    (State.CREATED, State.PENDING_SHUTDOWN),
    (State.CREATED, State.PENDING_ERROR),
    (State.STANDBY, State.REBALANCING),
    (State.STANDBY, State.PENDING_SHUTDOWN),
    (State.STANDBY, State.PENDING_ERROR),
    (State.REBALANCING, State.STANDBY),
    (State.REBALANCING, State.RUNNING),
    (State.REBALANCING, State.PENDING_SHUTDOWN),
    (State.REBALANCING, State.PENDING_ERROR),
    (State.RUNNING, State.STANDBY),
    (State.RUNNING, State.REBALANCING),
    (State.RUNNING, State.PENDING_SHUTDOWN),
    (State.RUNNING, State.PENDING_ERROR),
    (State.PENDING_SHUTDOWN, State.NOT_RUNNING),
    (State.PENDING_SHUTDOWN, State.PENDING_ERROR),
    (State.PENDING_ERROR, State.ERROR),
}


def machine_in(state: State) -> StateMachine:
    machine = StateMachine()
    for step in WAYS_TO[state]:
        machine.enter(step)
    assert machine.state is state
    return machine


@pytest.mark.parametrize("before", list(State), ids=lambda state: state.value)
def test_only_some_states_may_follow(before: State) -> None:
    for after in State:
        machine = machine_in(before)
        if (before, after) in ALLOWED:
            machine.enter(after)
            assert machine.state is after
        else:
            with pytest.raises(RuntimeError, match=f"cannot change from {before.value} to {after.value}"):
                machine.enter(after)
            assert machine.state is before


def test_listeners_receive_the_new_state_and_the_old_one() -> None:
    told: list[tuple[State, State]] = []
    machine = StateMachine((lambda new, old: told.append((new, old)),))
    machine.enter(State.REBALANCING)
    machine.enter(State.RUNNING)
    assert told == [(State.REBALANCING, State.CREATED), (State.RUNNING, State.REBALANCING)]


def test_a_listener_that_fails_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    def fails(new: State, old: State) -> None:
        raise ValueError("the listener's own")

    told: list[State] = []
    machine = StateMachine((fails, lambda new, old: told.append(new)))
    with caplog.at_level(logging.ERROR):
        machine.enter(State.REBALANCING)
    assert (machine.state, told) == (State.REBALANCING, [State.REBALANCING])
    assert "a state listener failed on rebalancing" in caplog.text


def test_a_listener_may_read_the_state() -> None:
    seen: list[bool] = []
    machine = StateMachine((lambda new, old: seen.append(machine.state is new),))
    machine.enter(State.REBALANCING)
    assert seen == [True]


def test_wait_for_returns_when_the_state_is_reached() -> None:
    machine = StateMachine()
    machine.enter(State.REBALANCING)
    thread = threading.Timer(0.02, machine.enter, [State.RUNNING])
    thread.start()
    assert machine.wait_for(State.RUNNING, State.ERROR, timeout_s=10)
    assert machine.state is State.RUNNING
    thread.join()


def test_wait_for_reports_a_timeout() -> None:
    machine = StateMachine()
    assert machine.wait_for(State.CREATED, timeout_s=0)
    assert not machine.wait_for(State.RUNNING, timeout_s=0.01)
