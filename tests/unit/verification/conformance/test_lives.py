"""The life of an application in the epoch oracle: how long processors live, by the rule alone, and what shows it."""

from __future__ import annotations

from collections import Counter

import pytest

from verification.conformance.epochs import generator
from verification.conformance.epochs.compare import differences
from verification.conformance.epochs.course import Action, Run, Start
from verification.conformance.epochs.drafts import IN_TURN, OF_LIFE
from verification.conformance.epochs.host import Outcome, play
from verification.conformance.epochs.lives import Begin, begins
from verification.conformance.epochs.router import murmur2
from verification.conformance.epochs.spec import Cut, EpochCase, Input, Restart
from verification.conformance.spec import Advance, Op, Settings, Step

ON, ANEW, START = Begin.GO_ON, Begin.ANEW, Begin.START


def epoch(again: bool = False, fails: bool = False, moves: bool = False) -> Run:
    return Run((), 0, ((),) if again else (), Cut(fails=fails, moves=moves))


def start(stores: str = "kept", ahead: bool = False) -> Start:
    return Start(Restart(1, stores), 0, () if ahead else None)


@pytest.mark.parametrize(
    ("actions", "in_flight", "expected"),
    [
        ([epoch(), epoch(), epoch()], 0, [START, ON, ON]),
        ([epoch(), epoch(again=True), epoch()], 0, [START, ANEW, ON]),
        ([epoch(), epoch(fails=True), epoch()], 0, [START, ANEW, ON]),
        ([epoch(), epoch(), epoch(fails=True), epoch()], 1, [START, ANEW, ON, ON]),
        ([epoch(), epoch(), epoch(), epoch(fails=True)], 2, [START, ANEW, ON, ON]),
        ([epoch(), epoch(), start(), epoch(), epoch()], 1, [START, ON, START, ON]),
        ([epoch(), epoch(), start("deleted"), epoch()], 1, [START, START, ON]),
        ([epoch(), start("ahead", ahead=True), epoch(), epoch(again=True)], 0, [START, START, ANEW]),
        ([epoch(), start(), epoch(fails=True), epoch()], 0, [START, START, ON]),
        ([epoch(moves=True), epoch(), epoch(moves=True), epoch(), epoch()], 0, [START, ANEW, ON, ANEW, ON]),
        ([epoch(), epoch(moves=True), epoch(fails=True), epoch()], 2, [START, ON, ON, ON]),
    ],
)
def test_processors_go_on_where_nothing_that_they_have_seen_is_undone(
    actions: list[Action], in_flight: int, expected: list[Begin]
) -> None:
    assert begins(actions, in_flight) == expected


def test_a_key_has_the_hash_that_kafka_gives_it() -> None:
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {key: murmur2(key) for key in known} == {key: number & 0xFFFFFFFF for key, number in known.items()}


def test_each_seed_has_each_kind_of_life_several_times() -> None:
    for seed in (1, 20261118):
        cases = [generator.case(seed, index) for index in range(1, 4 * 6 * len(IN_TURN), 4)]
        found: Counter[str] = Counter()
        for case in cases:
            ops = [op for op in case.ops if op.args.get("fn") in OF_LIFE or op.verb.startswith("own_")]
            found.update({op.args.get("fn") or f"{op.verb.removeprefix('own_')}_{op.args['kept']}" for op in ops})
        assert min(found[name] for name in OF_LIFE if name != "windowed_sink") >= 6
        assert {case.failures for case in cases} == {"fail", "drop", "retry"}
        assert sum(isinstance(step, Cut) and step.moves for case in cases for step in case.steps) > len(OF_LIFE)


def played(fn: str, *steps: Step, **args: object) -> Outcome:
    stores = {"uses": "own", "stores": ["own"]} if fn.startswith("once") else {}
    ops = (
        Op("n0", "builder_stream", (), {"topic": "in"}),
        Op("n1", "builder_add_state_store", (), {"name": "own", "kind": "key_value", "key": "string", "value": "long"}),
        Op("n2", "stream_process", ("n0",), {"fn": fn, **stores, **args}),
        Op("n3", "stream_to", ("n2",), {"topic": "out"}),
    )
    case = EpochCase("test", ops, steps, {"in": ("string", "string")}, settings=Settings(wall_clock=1_000))
    outcome = play(case)
    assert differences(case, outcome) == []
    return outcome


def values(outcome: Outcome) -> list[str]:
    return [(row.value or b"").decode() for row in outcome.actual]


A = Input("in", "a", "v", 5)


def test_an_attribute_counts_through_epochs_until_something_is_undone() -> None:
    outcome = played("numbering", A, Cut(), A, Cut(), A, Cut("same"), A, Cut(moves=True), A, Cut(), A, Restart(1), A)
    assert values(outcome) == ["v#1", "v#2", "v#1", "v#2", "v#1", "v#2", "v#1"]


def test_what_is_scheduled_late_is_called_in_later_epochs_and_not_after_a_start() -> None:
    outcome = played("late_wall", A, Advance(10), Advance(10), Restart(1), Advance(10), interval=10, rounds=5)
    assert values(outcome) == ["v", "1 at 1010", "2 at 1020"]


def test_what_init_schedules_is_cancelled_until_the_next_start() -> None:
    steps = (A, Advance(10), Advance(10), Cut("same"), Advance(10), Restart(1), Advance(10), Advance(10))
    outcome = played("once_wall", *steps, interval=10, rounds=1)
    assert values(outcome) == ["v", "1 at 1010", "2 at 1050"]


def test_a_processor_that_is_not_closed_is_found() -> None:
    case = EpochCase("test", (), (), {})
    assert [found.kind for found in differences(case, Outcome(unclosed=["Numbering"]))] == ["life"]
