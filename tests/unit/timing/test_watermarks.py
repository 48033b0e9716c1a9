"""Watermarks: strategies, and the application's watermark from those of its partitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import TopologyError
from penstock.records import NO_TIMESTAMP
from penstock.timing import Watermark, WatermarkTracker, bounded_disorder, monotonous, watermark_from


def test_strategies() -> None:
    assert bounded_disorder("10s", idle="30s") == Watermark(disorder_ms=10_000, idle_ms=30_000)
    assert monotonous(idle=5, follow_wall_clock=True) == Watermark(0, 5, True)
    by_function = watermark_from(lambda record: record.timestamp, idle="1s")
    assert by_function.function is not None
    assert by_function.idle_ms == 1_000


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"disorder_ms": -1}, "must not be negative"),
        ({"idle_ms": 0}, "at least 1 ms"),
        ({"follows_wall_clock": True}, "needs idle"),
    ],
)
def test_rejects_invalid_settings(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        Watermark(**settings)


def test_the_lowest_partition_holds_all_others_back() -> None:
    tracker = WatermarkTracker({"a": monotonous(), "b": monotonous()}, started_at=0)
    tracker.heard("a", 70, at=1)
    assert tracker.advance(at=1_000_000) == NO_TIMESTAMP
    tracker.heard("b", 20, at=2)
    assert tracker.advance(at=3) == 20
    tracker.heard("b", 90, at=4)
    assert tracker.advance(at=5) == 70


def test_an_idle_partition_holds_nothing_back_until_its_next_record() -> None:
    tracker = WatermarkTracker({"a": monotonous(), "b": monotonous(idle=100)}, started_at=0)
    tracker.heard("a", 70, at=50)
    assert tracker.advance(at=99) == NO_TIMESTAMP
    assert not tracker.is_idle("b", at=99)
    assert tracker.advance(at=100) == 70
    assert [tracker.is_idle(partition, at=100) for partition in "ab"] == [False, True]
    tracker.heard("b", 10, at=150)
    tracker.heard("a", 90, at=150)
    assert tracker.advance(at=151) == 70, "it does not go back, and the partition that is active again holds it"
    tracker.heard("b", 80, at=152)
    assert tracker.advance(at=153) == 80


def test_a_partition_that_is_not_read_to_its_end_is_not_idle() -> None:
    tracker = WatermarkTracker({"a": monotonous(), "b": monotonous(idle=100)}, started_at=0)
    tracker.heard("a", 70, at=1)
    tracker.lag(frozenset({"b", "of no strategy"}), at=90)
    assert tracker.advance(at=150) == NO_TIMESTAMP
    assert tracker.advance(at=190) == 70


def test_when_all_are_idle_time_stands_still_unless_it_follows_the_wall_clock() -> None:
    still = WatermarkTracker({"a": monotonous(idle=100)}, started_at=0)
    still.heard("a", 70, at=1)
    assert [still.advance(at=now) for now in (50, 5_000)] == [70, 70]
    follows = WatermarkTracker(
        {"a": bounded_disorder(10, idle=100, follow_wall_clock=True), "b": monotonous(idle=300, follow_wall_clock=True)},
        started_at=0,
    )
    follows.heard("a", 70, at=1)
    follows.heard("b", 75, at=1)
    assert follows.advance(at=299) == 75
    assert follows.advance(at=301) == 291
    mixed = WatermarkTracker({"a": monotonous(idle=1, follow_wall_clock=True), "b": monotonous(idle=1)}, started_at=0)
    assert mixed.advance(at=1_000) == NO_TIMESTAMP, "one partition without the option prevents it"


def test_resumes_from_the_committed_watermark() -> None:
    tracker = WatermarkTracker({"a": monotonous(), "b": monotonous()}, started_at=0, known={"a": 50}, reached=40)
    assert tracker.watermarks == {"a": 50, "b": NO_TIMESTAMP}
    assert tracker.advance(at=1) == 40
    tracker.heard("a", 30, at=2)
    tracker.heard("b", 60, at=2)
    assert tracker.advance(at=3) == 50


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 50), st.integers(0, 20)), max_size=40))
def test_never_goes_back_and_never_passes_an_active_partition(steps: list[tuple[str, int, int]]) -> None:
    partitions = {"a": monotonous(), "b": monotonous(idle=15), "c": bounded_disorder(3, idle=5, follow_wall_clock=True)}
    tracker = WatermarkTracker(partitions, started_at=0)
    now, before = 0, NO_TIMESTAMP
    for partition, watermark, pause in steps:
        now += pause
        tracker.heard(partition, watermark, at=now)
        reached = tracker.advance(at=now)
        assert reached >= before
        awake = [tracker.watermarks[name] for name in partitions if not tracker.is_idle(name, at=now)]
        assert reached <= max(before, min(awake)), "a is never idle, so one partition is always active"
        before = reached
