"""Where an application continues after a reset, parsed from the command line."""

from __future__ import annotations

import pytest

from penstock.cli.goals import goals_of
from penstock.errors import ConfigError
from penstock.history.rewind import Goal, To


def test_each_topic_has_its_goal() -> None:
    assert goals_of(["a"], ["b"], ["c=2026-01-31T12:00:00Z", "d=5"], ["e=7"]) == {
        "a": {None: Goal(To.EARLIEST)},
        "b": {None: Goal(To.LATEST)},
        "c": {None: Goal(To.TIME, 1_769_860_800_000)},
        "d": {None: Goal(To.TIME, 5)},
        "e": {None: Goal(To.OFFSET, 7)},
    }


def test_partitions_may_have_their_own_goals() -> None:
    assert goals_of(latest=["a:1"], offsets=["a:0=7"]) == {"a": {0: Goal(To.OFFSET, 7), 1: Goal(To.LATEST)}}


def test_a_time_may_be_in_any_zone() -> None:
    [a, b] = goals_of(times=["a=2026-01-31T12:00:00+02:00", "b=2026-01-31T10:00:00Z"]).values()
    assert a == b


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"earliest": ["a"], "latest": ["a"]}, "--to-latest: 'a' is named twice. Name each topic or partition once."),
        ({"earliest": ["a:1"], "latest": ["a"]}, "--to-latest: 'a' is named twice"),
        ({"earliest": ["a"], "latest": ["a:1"]}, "--to-latest: 'a:1' is named twice"),
        ({"earliest": ["a:1", "a:1"]}, "--to-earliest: 'a:1' is named twice"),
        ({"earliest": ["a:x"]}, "--to-earliest: invalid topic 'a:x'. Expected TOPIC or TOPIC:PARTITION."),
        ({"earliest": [""]}, "--to-earliest: invalid topic ''"),
        ({"offsets": ["a"]}, "--to-offset: expected TOPIC:PARTITION=OFFSET, got 'a'."),
        ({"offsets": ["a=-1"]}, "--to-offset: invalid offset '-1'"),
        ({"times": ["a=yesterday"]}, "--to-time: invalid time 'yesterday'. Write 2026-01-31T12:00:00Z"),
        ({"times": ["a=2026-01-31T12:00:00"]}, "has no time zone. Append Z"),
    ],
)
def test_invalid_goals_are_refused(said: dict[str, list[str]], complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        goals_of(**said)
    assert complaint in str(refused.value)
