"""Windows: Kafka Streams' rules for what they may be, and which windows a time is in."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import TopologyError
from penstock.timing import (
    MAX_MS,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    hopping,
    join_windows,
    session,
    sliding,
    tumbling,
    unlimited,
)


def test_constructors_accept_durations_and_default_to_no_grace() -> None:
    assert tumbling("1m") == TimeWindows(60_000, 60_000, 0)
    assert tumbling(timedelta(minutes=1), grace="5s") == TimeWindows(60_000, 60_000, 5_000)
    assert hopping("1m", "20s") == TimeWindows(60_000, 20_000, 0)
    assert hopping("1m", "20s", grace=1) == TimeWindows(60_000, 20_000, 1)
    assert sliding("10s") == SlidingWindows(10_000, 0)
    assert sliding("10s", grace="1s") == SlidingWindows(10_000, 1_000)
    assert session("30m") == SessionWindows(1_800_000, 0)
    assert session("30m", grace="1m") == SessionWindows(1_800_000, 60_000)
    assert unlimited() == UnlimitedWindows(0)
    assert unlimited("1970-01-01T00:00:05Z") == UnlimitedWindows(5_000)
    assert join_windows("10s") == JoinWindows(10_000, 10_000, 0)
    assert join_windows(("10s", timedelta()), "1m") == JoinWindows(10_000, 0, 60_000)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: tumbling(0), "window size must be positive, got 0 ms"),
        (lambda: tumbling("-1s"), "window size must be positive"),
        (lambda: tumbling("1s", grace="-1ms"), "grace period must not be negative, got -1 ms"),
        (lambda: hopping("1s", 0), "positive and at most the window size of 1000 ms, got 0 ms"),
        (lambda: hopping("1s", "1001ms"), "got 1001 ms"),
        (lambda: sliding("-1ms"), "time difference of sliding windows must be positive, got -1 ms"),
        (lambda: sliding(0), "time difference of sliding windows must be positive, got 0 ms"),
        (lambda: sliding(1, grace=-1), "grace period must not be negative"),
        (lambda: session(-1), "inactivity gap of session windows must not be negative"),
        (lambda: session(1, grace=-1), "grace period must not be negative"),
        (lambda: unlimited(-1), "window start must not be negative"),
        (lambda: join_windows("-1s"), "must not end before it starts, got -1000 ms before and -1000 ms after"),
        (lambda: join_windows(("-2s", "1s")), "must not end before it starts"),
        (lambda: join_windows("1s", "-1s"), "grace period must not be negative"),
        (lambda: join_windows(("1s", "1s", "1s")), "a pair"),  # type: ignore[arg-type]
        (lambda: join_windows(("1s", "soon")), "within, after: invalid duration 'soon'"),
        (lambda: tumbling("soon"), "window size: invalid duration 'soon'"),
    ],
)
def test_rejects_what_kafka_streams_rejects(build: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(TopologyError, match=complaint):
        build()


def test_the_limits_of_what_is_allowed() -> None:
    assert hopping(10, 10) == tumbling(10)
    assert sliding(1).size_ms == 1
    assert session(0).gap_ms == 0
    assert join_windows(("-1s", "1s")).size_ms == 0
    assert join_windows(("-5s", "10s")) == JoinWindows(-5_000, 10_000, 0)


def test_retention_is_the_minimum_that_keeps_every_window_in_grace() -> None:
    assert tumbling(10, grace=3).retention_ms == 13
    assert hopping(10, 2, grace=3).retention_ms == 13
    assert sliding(10, grace=3).retention_ms == 23
    assert session(10, grace=3).retention_ms == 13
    assert join_windows((4, 6), 3).retention_ms == 13
    assert unlimited().retention_ms == MAX_MS


def test_windows_of_a_time() -> None:
    assert list(tumbling(10).windows_for(0)) == [0]
    assert list(tumbling(10).windows_for(9)) == [0]
    assert list(tumbling(10).windows_for(10)) == [10]
    # the example of Kafka Streams' own tests: no window starts before time 0, the earliest comes first
    assert list(hopping(12, 5).windows_for(21)) == [10, 15, 20]
    assert list(hopping(12, 5).windows_for(3)) == [0]
    assert list(hopping(10, 5).windows_for(7)) == [0, 5]
    assert list(hopping(12, 5).windows_for(-1)) == []


def test_the_unlimited_window_has_a_start_and_no_end() -> None:
    windows = unlimited(5)
    assert list(windows.windows_for(4)) == []
    assert list(windows.windows_for(5)) == [5]
    assert list(windows.windows_for(MAX_MS)) == [5]
    assert (windows.size_ms, windows.grace_ms) == (MAX_MS, 0)


def test_windows_are_values() -> None:
    for windows in (tumbling(10), sliding(10), session(10), unlimited(), join_windows(10)):
        assert pickle.loads(pickle.dumps(windows)) == windows
        assert hash(windows) == hash(windows)
        with pytest.raises(FrozenInstanceError):
            setattr(windows, fields(windows)[0].name, 1)


times = st.integers(0, 10**13)
sizes = st.integers(1, 10**6)


@given(times, sizes)
def test_a_time_is_in_exactly_one_tumbling_window(timestamp: int, size: int) -> None:
    (start,) = tumbling(size).windows_for(timestamp)
    assert start <= timestamp < start + size
    assert start % size == 0


@given(times, st.integers(1, 1_000), st.data())
def test_a_time_is_in_every_hopping_window_around_it(timestamp: int, size: int, data: st.DataObject) -> None:
    advance = data.draw(st.integers(1, size))
    starts = list(hopping(size, advance).windows_for(timestamp))
    assert starts == sorted(set(starts))
    assert all(start <= timestamp < start + size and start % advance == 0 for start in starts)
    assert size // advance <= len(starts) or starts[0] == 0
    assert 1 <= len(starts) <= -(-size // advance)
    before, after = starts[0] - advance, starts[-1] + advance
    assert before < 0 or before + size <= timestamp
    assert after > timestamp
