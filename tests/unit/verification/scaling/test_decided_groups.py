"""Groups with a decision record: all that may happen at small sizes, much of it at larger ones, and planted bugs."""

from __future__ import annotations

from dataclasses import replace

import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, find, given, settings

from verification.scaling.decided_groups import Bug, Phase, Size, World, first, moves
from verification.scaling.exploration import SMALL, explore, walk
from verification.scaling.invariants import lost, violation, violation_after_restart

TINY = Size(drivers=2, groups=2, epochs=1, timeouts=1, retries=1)
UNDECIDED = "rows are visible that nobody has decided"
LOST = "decided rows are lost, and their transaction has not timed out"
REFUSED = f"decided rows are not lost, and a restart ends with: {Phase.HOLE.value}"
CAUGHT_BY = {
    Bug.COMMIT_BEFORE_DECISION: UNDECIDED,
    Bug.ABORT_AFTER_DECISION: REFUSED,
    Bug.DECIDE_EARLY: LOST,
    Bug.FINISH_WITHOUT_IDENTITY: UNDECIDED,
    Bug.READ_BEFORE_FENCE: LOST,
    Bug.READ_PAST_OWN_RECORD: LOST,
    Bug.REUSED_IDS: LOST,
    Bug.RETRY_WITHOUT_ABORT: REFUSED,
    Bug.SILENT_HOLE: f"decided rows are lost, and a restart ends with: {Phase.DONE.value}",
    Bug.TRUST_ANSWERS: REFUSED,
}
choices = st.lists(st.integers(0, 10_000), min_size=40, max_size=200)
sizes = st.builds(
    Size,
    groups=st.integers(1, 5),
    epochs=st.integers(1, 4),
    drivers=st.integers(1, 5),
    timeouts=st.integers(0, 3),
    retries=st.integers(0, 3),
)


def test_nothing_that_may_happen_breaks_a_rule() -> None:
    found = explore(TINY)
    assert (found.violation, found.way) == (None, ())
    assert found.holes > 0  # the model can lose decided rows, and says so each time


def test_without_timeouts_nothing_decided_is_ever_lost() -> None:
    found = explore(replace(TINY, timeouts=0))
    assert (found.violation, found.holes) == (None, 0)


@pytest.mark.parametrize("bug", Bug)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    found = explore(replace(SMALL, bug=bug))
    assert found.violation == CAUGHT_BY[bug]
    assert found.way[0] == "a driver starts"


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(sizes, choices)
def test_no_way_through_a_larger_size_breaks_a_rule(size: Size, chosen: list[int]) -> None:
    wrong, _ = walk(size, chosen)
    assert wrong is None


@pytest.mark.parametrize("bug", [Bug.COMMIT_BEFORE_DECISION, Bug.ABORT_AFTER_DECISION, Bug.SILENT_HOLE])
def test_such_a_way_finds_planted_bugs(bug: Bug) -> None:
    size = Size(groups=3, epochs=3, drivers=4, timeouts=2, retries=2, bug=bug)
    unshrunk = settings(deadline=None, database=None, phases=[hypothesis.Phase.generate])
    chosen = find(choices, lambda chosen: walk(size, chosen)[0] is not None, settings=unshrunk)
    assert walk(replace(size, bug=None), chosen)[0] is None


def alone(world: World, size: Size, said: str) -> World:
    """Let the last driver go on until it has made a move that is called so."""
    number = len(world.drivers) - 1
    while True:
        for name, following in moves(world, size):
            if name.startswith(f"driver {number}: ") and "dies" not in name:
                world = following
                break
        else:
            raise AssertionError(f"driver {number} never comes to: {said}")
        if name.endswith(said):
            return world


def made(world: World, size: Size, said: str) -> World:
    return next(following for name, following in moves(world, size) if name == said)


def test_down_for_longer_than_the_timeout_is_a_hole_that_every_start_reports() -> None:
    size = replace(SMALL, drivers=3)
    world = alone(made(first(size), size, "a driver starts"), size, Phase.DECIDE.value)
    world = made(world, size, "the transaction of group 1 of start 0 times out")
    assert lost(world.kafka, world.kafka.decisions[0], size) == {(0, 1, 0)}
    for _ in range(2):
        world = alone(made(world, size, "a driver starts"), size, Phase.VERIFY.value)
        assert world.drivers[-1].phase is Phase.HOLE
    assert violation(world, size) is None
    assert world.kafka.ids[0][0].visible == ((1, 0),)  # a part of it is visible: that is why nobody may go on


def test_half_of_the_commits_are_finished_by_the_next_start() -> None:
    world = alone(made(first(SMALL), SMALL, "a driver starts"), SMALL, f"{Phase.COMPLETE.value}, group 0")
    assert [found.visible for found in world.kafka.ids[0]] == [((1, 0),), ()]
    world = alone(made(world, SMALL, "a driver starts"), SMALL, Phase.VERIFY.value)
    assert [found.visible for found in world.kafka.ids[0]] == [((1, 0),), ((1, 0),)]
    assert violation_after_restart(world.kafka, SMALL) is None


def test_a_driver_that_wakes_up_cannot_write_or_decide() -> None:
    world = alone(made(first(SMALL), SMALL, "a driver starts"), SMALL, f"{Phase.WRITE.value}, group 0")
    world = alone(made(world, SMALL, "a driver starts"), SMALL, Phase.VERIFY.value)
    world = made(world, SMALL, f"driver 0: {Phase.WRITE.value}, group 1")
    assert world.drivers[0].phase is Phase.ENDED
    assert world.kafka.ids[0][1].open is None
