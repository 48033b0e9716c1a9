"""The stays of lanes in a process: which processors go on, and when the others are closed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.epochs.assignment import Assignment
from penstock.epochs.program import Epoch, Program
from penstock.epochs.stays import end_stays, staying
from penstock.state import LaneState, memory_engine
from penstock.topology.nodes import SourceNode
from tests.unit.epochs.application import program_of


class Stayer:
    """What a user's object is to its lane."""

    user_object: Any = None
    has_rescheduled = False

    def __init__(self, fails: bool = False) -> None:
        self.closed = 0
        self._fails = fails

    def close(self) -> None:
        self.closed += 1
        if self._fails:
            raise OSError("no connection")


@pytest.fixture
def program() -> Iterator[Program]:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    made = program_of(builder.build(), 2)
    yield made
    end_stays(made)


class Lanes:
    """Lanes that run one epoch after the other in this process."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.states = [LaneState(memory_engine()) for _ in range(2)]

    def run(self, lane: int, epoch: int, stayer: Stayer, *, fails: bool = False) -> Stayer:
        """Run an epoch; return who is there: this one, if nobody has stayed."""
        assigned, state = Assignment(self._program, Epoch(epoch, epoch - 1, 0), lane=lane), self.states[lane]
        [node] = [node for node in self._program.nodes.values() if isinstance(node, SourceNode)]
        with staying(assigned, state) as stay:
            found = stay.residents(0).of(node, "", lambda: stayer)
            if fails:
                raise ValueError("it has failed")
            state.commit(epoch)
        return found


@pytest.fixture
def lanes(program: Program) -> Lanes:
    return Lanes(program)


def test_what_has_written_the_state_goes_on(lanes: Lanes) -> None:
    first = Stayer()
    for epoch in range(3):
        assert lanes.run(0, epoch, first if epoch == 0 else Stayer()) is first
    assert first.closed == 0


def test_a_roll_back_ends_a_stay(lanes: Lanes) -> None:
    first, second = Stayer(), Stayer()
    lanes.run(0, 0, first)
    lanes.run(0, 1, Stayer())
    lanes.states[0].roll_back()
    assert lanes.run(0, 1, second) is second
    assert (first.closed, second.closed) == (1, 0)


def test_a_write_of_another_process_ends_a_stay(lanes: Lanes) -> None:
    first, second = Stayer(), Stayer()
    lanes.run(0, 0, first)
    lanes.states[0].commit(1)
    assert lanes.run(0, 2, second) is second
    assert first.closed == 1


def test_a_failure_ends_a_stay_at_once(lanes: Lanes) -> None:
    first, second = Stayer(), Stayer()
    lanes.run(0, 0, first)
    with pytest.raises(ValueError, match="it has failed"):
        lanes.run(0, 1, Stayer(), fails=True)
    assert first.closed == 1
    assert lanes.run(0, 1, second) is second


def test_a_lane_that_runs_elsewhere_is_left(lanes: Lanes) -> None:
    here, gone = Stayer(), Stayer()
    for epoch in range(2):
        lanes.run(0, epoch, here)
        if epoch == 0:
            lanes.run(1, epoch, gone)
    assert gone.closed == 0  # it may be next
    lanes.run(0, 2, here)
    assert (here.closed, gone.closed) == (0, 1)


def test_a_processor_that_fails_to_close_stops_nothing(lanes: Lanes, program: Program, caplog: pytest.LogCaptureFixture) -> None:
    bad, other = Stayer(fails=True), Stayer()
    lanes.run(0, 0, bad)
    lanes.run(1, 0, other)
    with caplog.at_level(logging.WARNING):
        end_stays(program)
    assert (bad.closed, other.closed) == (1, 1)
    assert "failed to close" in caplog.text


def test_each_start_has_its_own(lanes: Lanes, program: Program) -> None:
    first, second = Stayer(), Stayer()
    lanes.run(0, 0, first)
    other = Lanes(replace(program, incarnation="another"))
    other.states = lanes.states
    assert other.run(0, 1, second) is second
    end_stays()
    assert (first.closed, second.closed) == (1, 1)
