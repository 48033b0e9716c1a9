"""What is held back where sources tell watermarks waits for the application's, whatever a record's own partition has reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    EmitStrategy,
    KStream,
    Store,
    StreamsBuilder,
    Topology,
    monotonous,
    session,
    sliding,
    tumbling,
    until_window_closes,
)
from penstock.testing import TopologyTestDriver

FAR_MS = 30_000
"""Ahead, and within what a store of windows keeps in any case."""


def _named(windowed: Any, value: Any) -> str:
    return f"{windowed.key}@{windowed.start}"


def suppressed(stream: KStream[Any, str]) -> KStream[Any, Any]:
    counts = stream.group_by_key().windowed_by(tumbling(10)).count()
    return counts.suppress(until_window_closes()).to_stream(_named, key=str)


def suppressed_sessions(stream: KStream[Any, str]) -> KStream[Any, Any]:
    counts = stream.group_by_key().windowed_by(session(10)).count()
    return counts.suppress(until_window_closes()).to_stream(_named, key=str)


def _on_close(windows: Any) -> Callable[[KStream[Any, str]], KStream[Any, Any]]:
    def counted(stream: KStream[Any, str]) -> KStream[Any, Any]:
        windowed = stream.group_by_key().windowed_by(windows)
        return windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream(_named, key=str)

    return counted


def of_two_topics(shape: Callable[[KStream[Any, str]], KStream[Any, Any]]) -> Topology:
    builder = StreamsBuilder()
    shape(builder.stream(["fast", "slow"], value=str, watermark=monotonous())).to("out", value=int)
    return builder.build()


SHAPES = {
    "suppressed": suppressed,
    "suppressed sessions": suppressed_sessions,
    "tumbling on close": _on_close(tumbling(10)),
    "sliding on close": _on_close(sliding(10)),
    "sessions on close": _on_close(session(10)),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("caching", [False, True])
def test_a_partition_that_is_ahead_closes_no_windows_of_others(
    shape: Callable[[KStream[Any, str]], KStream[Any, Any]], caching: bool
) -> None:
    with TopologyTestDriver(of_two_topics(shape), caching=caching) as driver:
        driver.input("slow").pipe("v", key="k", timestamp=100)
        driver.input("fast").pipe("v", key="other", timestamp=FAR_MS)
        assert driver.output("out").is_empty
        driver.input("slow").pipe("v", key="k", timestamp=100)
        assert driver.output("out").is_empty
        driver.input("slow").pipe("v", key="other", timestamp=FAR_MS)
        assert [value for key, value in driver.output("out").pairs() if key.startswith("k@")] == [2]


def test_a_session_that_a_watermark_has_closed_stays_closed() -> None:
    """A record that is not late itself begins another: whether the closed one was sent on already depends on barriers."""
    with TopologyTestDriver(of_two_topics(suppressed_sessions), caching=False) as driver:
        slow, fast = driver.input("slow"), driver.input("fast")
        fast.pipe("v", key="other", timestamp=FAR_MS)
        slow.pipe("v", key="k", timestamp=100)
        slow.pipe("v", key="another", timestamp=111)
        assert driver.output("out").pairs() == [("k@100", 1)]
        slow.pipe("v", key="k", timestamp=105)
        slow.pipe("v", key="another", timestamp=FAR_MS)
        assert ("k@105", 1) in driver.output("out").pairs()


def test_what_found_no_partner_waits_for_both_sides() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, value=str, watermark=monotonous()) for topic in ("left", "right"))
    joined = left.left_join(right, lambda one, other: f"{one}{other}", within=10, grace=0, value=str, other_value=str)
    joined.to("out", value=str)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("left").pipe("a", key="k", timestamp=100)
        driver.input("left").pipe("b", key="other", timestamp=FAR_MS)
        assert driver.output("out").is_empty
        driver.input("right").pipe("A", key="k", timestamp=105)
        assert driver.output("out").values() == ["aA"]


def test_a_join_with_grace_waits_for_the_tables_side_too() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=str, watermark=monotonous())
    table = builder.stream("changes", value=str, watermark=monotonous()).to_table(store=Store("t", value=str, history="1h"))
    stream.join(table, lambda one, other: f"{one}{other}", grace=50).to("out", value=str)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe("a", key="k", timestamp=100)
        driver.input("in").pipe("b", key="other", timestamp=FAR_MS)
        assert driver.output("out").is_empty
        driver.input("changes").pipe("A", key="k", timestamp=90)
        driver.input("changes").pipe("B", key="other", timestamp=FAR_MS)
        assert driver.output("out").values() == ["aA"]
