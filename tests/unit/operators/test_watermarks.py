"""What is held back where sources have watermarks: it waits for the application's, however far a record's partition is."""

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
    bounded_disorder,
    monotonous,
    session,
    sliding,
    tumbling,
    until_window_closes,
)
from penstock.testing import TopologyTestDriver

FAR_MS = 1_000_000


def _named(windowed: Any, value: Any) -> str:
    return f"{windowed.key}@{windowed.start}"


def suppressed(stream: KStream[Any, str]) -> KStream[Any, Any]:
    counts = stream.group_by_key().windowed_by(tumbling(10)).count()
    return counts.suppress(until_window_closes()).to_stream(_named, key=str)


def suppressed_sessions(stream: KStream[Any, str]) -> KStream[Any, Any]:
    counts = stream.group_by_key().windowed_by(session(10)).count(store=Store(retention="1h"))
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
def test_a_partition_that_is_ahead_closes_no_windows_of_other_partitions(
    shape: Callable[[KStream[Any, str]], KStream[Any, Any]], caching: bool
) -> None:
    with TopologyTestDriver(of_two_topics(shape), caching=caching) as driver:
        driver.input("slow").pipe("v", key="k", timestamp=100)
        for _ in range(2):  # the second carries the watermark of the first
            driver.input("fast").pipe("v", key="other", timestamp=FAR_MS)
        assert driver.output("out").is_empty
        driver.input("slow").pipe("v", key="k", timestamp=100)
        assert driver.output("out").is_empty
        driver.input("slow").pipe("v", key="other", timestamp=FAR_MS)
        assert [value for key, value in driver.output("out").pairs() if key.startswith("k@")] == [2]


def test_a_session_that_a_watermark_has_closed_stays_closed() -> None:
    """A record that is not late starts another session: whether the closed one was emitted already depends on barriers."""
    with TopologyTestDriver(of_two_topics(suppressed_sessions), caching=False) as driver:
        slow, fast = driver.input("slow"), driver.input("fast")
        fast.pipe("v", key="other", timestamp=FAR_MS)
        slow.pipe("v", key="k", timestamp=100)
        slow.pipe("v", key="another", timestamp=111)
        assert driver.output("out").pairs() == [("k@100", 1)]
        slow.pipe("v", key="k", timestamp=105)
        slow.pipe("v", key="another", timestamp=FAR_MS)
        assert ("k@105", 1) in driver.output("out").pairs()


def test_a_record_without_partner_waits_for_both_sides() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, value=str, watermark=monotonous()) for topic in ("left", "right"))
    joined = left.left_join(right, lambda one, other: f"{one}{other}", within=10, grace=0, value=str, other_value=str)
    joined.to("out", value=str)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("left").pipe("a", key="k", timestamp=100)
        for value in "bc":
            driver.input("left").pipe(value, key="other", timestamp=FAR_MS)
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
        for value in "bc":
            driver.input("in").pipe(value, key="other", timestamp=FAR_MS)
        assert driver.output("out").is_empty
        driver.input("changes").pipe("A", key="k", timestamp=90)
        driver.input("changes").pipe("B", key="other", timestamp=FAR_MS)
        assert driver.output("out").values() == ["aA"]


@pytest.mark.parametrize("caching", [False, True])
def test_a_store_keeps_windows_that_out_of_order_records_may_update(caching: bool) -> None:
    """By the times it is given, the store would have dropped the window: its retention is size and grace."""
    builder = StreamsBuilder()
    stream = builder.stream("in", value=str, watermark=bounded_disorder("10s"))
    suppressed(stream).to("out", value=int)
    with TopologyTestDriver(builder.build(), caching=caching) as driver:
        for time in (105, 9_000, 104, FAR_MS):
            driver.input("in").pipe("v", key="k", timestamp=time)
        assert dict(driver.output("out").pairs())["k@100"] == 2


@pytest.mark.parametrize("is_moved", [False, True], ids=["in one stage", "behind an exchange"])
@pytest.mark.parametrize("caching", [False, True])
def test_windows_of_windows_include_all_that_closes_with_them(is_moved: bool, caching: bool) -> None:
    builder = StreamsBuilder()
    closed = suppressed(builder.stream("in", value=str, watermark=monotonous())).select_key(lambda *_: "all", key=str)
    grouped = closed.group_by(lambda key, _: f"{key}!", key=str, value=int) if is_moved else closed.group_by_key(value=int)
    sums = grouped.windowed_by(tumbling(100)).reduce(int.__add__, store=Store(value=int))
    sums.suppress(until_window_closes()).to_stream(_named, key=str).to("out", value=int)
    with TopologyTestDriver(builder.build(), caching=caching) as driver:
        for time in range(0, 201, 5):
            driver.input("in").pipe("v", key="k", timestamp=time)
        driver.input("in").pipe("v", key="k", timestamp=FAR_MS)
        assert [value for _, value in driver.output("out").pairs()][:2] == [20, 20]
