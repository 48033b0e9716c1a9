"""Watermarks in the test driver: windows that close by them, late records, sources that fall silent."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    KStream,
    StreamsBuilder,
    Topology,
    bounded_disorder,
    dead_letter,
    log_and_continue,
    log_and_fail,
    monotonous,
    retry,
    session,
    sliding,
    tumbling,
    until_window_closes,
    watermark_from,
)
from penstock.errors import ConfigError, LateRecordError, ProcessingError, TopologyError
from penstock.handlers import Failure
from penstock.testing import TopologyTestDriver

SECOND = 1_000


def counted(topic: str = "in", window: Any = None, **options: Any) -> Topology:
    """Counts per key and 10 s, each once, when its window closes."""
    builder = StreamsBuilder()
    counts = builder.stream(topic, value=str, **options).group_by_key().windowed_by(window or tumbling("10s")).count()
    counts.suppress(until_window_closes()).to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start}").to("out", value=int)
    return builder.build()


def pipe(driver: TopologyTestDriver, *seconds: int, topic: str = "in", key: str = "k") -> None:
    for second in seconds:
        driver.input(topic).pipe("x", key=key, timestamp=second * SECOND)


def counts(driver: TopologyTestDriver) -> list[tuple[str, Any]]:
    return [(record.key, record.value) for record in driver.output("out").records()]


class TestClosing:
    def test_a_window_waits_for_as_long_as_records_may_be_out_of_order(self) -> None:
        with TopologyTestDriver(counted(watermark=bounded_disorder("5s"))) as driver:
            pipe(driver, 1, 12, 3, 14)
            assert counts(driver) == []
            pipe(driver, 15)
            assert counts(driver) == [("k@0", 2)]

    def test_without_disorder_the_first_record_beyond_closes(self) -> None:
        with TopologyTestDriver(counted(watermark=monotonous())) as driver:
            pipe(driver, 1, 9)
            assert counts(driver) == []
            pipe(driver, 10)
            assert counts(driver) == [("k@0", 2)]

    def test_records_can_tell_it_themselves(self) -> None:
        told = watermark_from(lambda record: int(record.value) if record.value.isdigit() else None)
        with TopologyTestDriver(counted(watermark=told)) as driver:
            pipe(driver, 1, 25, 3)
            assert counts(driver) == []
            driver.input("in").pipe("10000", key="other", timestamp=2_000)
            assert counts(driver) == [("k@0", 2), ("other@0", 1)]

    def test_a_function_that_fails_names_the_source_and_the_record(self) -> None:
        said = r"watermark function of KSTREAM-SOURCE-0000000000 .*in-0 at offset 0"
        told = watermark_from(lambda record: record.value.nonsense)
        with TopologyTestDriver(counted(watermark=told)) as driver, pytest.raises(ProcessingError, match=said):
            pipe(driver, 1)

    @pytest.mark.parametrize(("window", "closes"), [(session("10s", grace="1s"), 12_000), (sliding("10s", grace="1s"), 11_000)])
    def test_sessions_and_sliding_windows_close_by_it_too(self, window: Any, closes: int) -> None:
        with TopologyTestDriver(counted(watermark=monotonous(), window=window)) as driver:
            pipe(driver, 1)
            driver.advance_watermark(closes - 1)
            assert counts(driver) == []
            driver.advance_watermark(closes)
            assert [count for _, count in counts(driver)] == [1]

    def test_by_hand(self) -> None:
        with TopologyTestDriver(counted(watermark=bounded_disorder("1h"))) as driver:
            pipe(driver, 1)
            driver.advance_watermark(9_999)
            assert counts(driver) == []
            driver.advance_watermark(10_000)
            driver.advance_watermark(5_000)
            assert counts(driver) == [("k@0", 1)]

    def test_what_has_closed_stays_closed(self) -> None:
        with TopologyTestDriver(counted(watermark=bounded_disorder("1h"))) as driver:
            pipe(driver, 1)
            driver.advance_watermark(10_000)
            pipe(driver, 2)
            driver.advance_watermark(20_000)
            assert counts(driver) == [("k@0", 1)]
            assert sum(driver.dropped().values()) == 1

    def test_a_left_join_waits_for_it(self) -> None:
        builder = StreamsBuilder(value=str)
        left, right = (builder.stream(topic, watermark=monotonous()) for topic in ("left", "right"))
        left.left_join(right, lambda a, b: f"{a}+{b}", within="5s").to("out")
        with TopologyTestDriver(builder.build()) as driver:
            pipe(driver, 1, topic="left")
            pipe(driver, 100, topic="left", key="other")
            assert counts(driver) == []
            pipe(driver, 7, topic="right", key="other")
            assert counts(driver) == [("k", "x+None")]


class TestSources:
    def two(self, **options: Any) -> Topology:
        builder = StreamsBuilder()
        streams: list[KStream[Any, Any]] = [
            builder.stream(topic, value=str, watermark=monotonous(**options)) for topic in ("a", "b")
        ]
        table = streams[0].merge(streams[1]).group_by_key().windowed_by(tumbling("10s")).count()
        table.suppress(until_window_closes()).to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start}").to(
            "out", value=int
        )
        return builder.build()

    def test_the_slowest_decides(self) -> None:
        with TopologyTestDriver(self.two()) as driver:
            pipe(driver, 1, 30, topic="a")
            assert counts(driver) == []
            pipe(driver, 5, topic="b")
            assert counts(driver) == []
            pipe(driver, 12, topic="b")
            assert counts(driver) == [("k@0", 2)]

    def test_a_fast_source_does_not_make_the_slow_ones_records_late(self) -> None:
        with TopologyTestDriver(self.two()) as driver:
            pipe(driver, 1, 300, topic="a")
            pipe(driver, 2, 3, 400, topic="b")
            assert counts(driver)[0] == ("k@0", 3)
            assert driver.dropped() == {}

    def test_an_idle_source_holds_nothing_back(self) -> None:
        with TopologyTestDriver(self.two(idle="30s")) as driver:
            pipe(driver, 1, 30, topic="a")
            driver.advance_wall_clock("29s")
            pipe(driver, 31, topic="a")
            assert counts(driver) == []
            driver.advance_wall_clock("1s")
            assert counts(driver) == [("k@0", 1)]

    def test_a_source_without_a_strategy_holds_nothing_back(self) -> None:
        builder = StreamsBuilder()
        told = builder.stream("a", value=str, watermark=monotonous())
        table = told.merge(builder.stream("b", value=str)).group_by_key().windowed_by(tumbling("10s")).count()
        table.suppress(until_window_closes()).to_stream(lambda windowed, _: windowed.key).to("out", value=int)
        with TopologyTestDriver(builder.build()) as driver:
            pipe(driver, 1, 11, topic="a")
            assert counts(driver) == [("k", 1)]

    def test_what_has_nothing_to_do_with_them_goes_by_its_own_stream_time(self) -> None:
        builder = StreamsBuilder()
        builder.stream("live", value=str, watermark=monotonous()).to("elsewhere", value=str)
        old = builder.stream("old", value=str).group_by_key().windowed_by(tumbling("10s")).count()
        old.suppress(until_window_closes()).to_stream(lambda windowed, _: windowed.key).to("out", value=int)
        with TopologyTestDriver(builder.build()) as driver:
            pipe(driver, 1_000_000, 2_000_000, topic="live")
            pipe(driver, 1, 2, topic="old")
            assert counts(driver) == []
            pipe(driver, 11, topic="old")
            assert counts(driver) == [("k", 2)]

    def test_what_closes_is_not_late_for_what_is_below(self) -> None:
        builder = StreamsBuilder()
        clicks = builder.stream("in", value=str, watermark=monotonous())
        closed = clicks.group_by_key().windowed_by(tumbling("10s")).count().suppress(until_window_closes())
        again = closed.to_stream(lambda windowed, _: "all").group_by_key(key=str, value=int).windowed_by(tumbling("20s"))
        sums = again.reduce(lambda total, count: total + count).suppress(until_window_closes())
        sums.to_stream(lambda windowed, _: str(windowed.start)).to("out", value=int)
        with TopologyTestDriver(builder.build()) as driver:
            pipe(driver, 1, 2, 11, 19)
            pipe(driver, 12, key="other")
            assert counts(driver) == []
            pipe(driver, 1_000)
            assert counts(driver) == [("0", 5)]

    def test_behind_an_exchange_too(self) -> None:
        builder = StreamsBuilder()
        moved = builder.stream("in", value=str, watermark=bounded_disorder("5s")).group_by(lambda _, value: value)
        table = moved.windowed_by(tumbling("10s")).count()
        table.suppress(until_window_closes()).to_stream(lambda windowed, _: windowed.key).to("out", value=int)
        with TopologyTestDriver(builder.build()) as driver:
            pipe(driver, 1, 12, 2, 14, 3)
            assert counts(driver) == []
            pipe(driver, 15)
            assert counts(driver) == [("x", 3)]


class TestSilence:
    def test_windows_close_when_input_stops(self) -> None:
        strategy = bounded_disorder("5s", idle="30s", follow_wall_clock=True)
        with TopologyTestDriver(counted(watermark=strategy), wall_clock=3 * SECOND) as driver:
            pipe(driver, 1, 3)
            driver.advance_wall_clock("29s")
            assert counts(driver) == []
            driver.advance_wall_clock("1s")
            assert counts(driver) == [("k@0", 2)]

    def test_but_only_if_asked_for(self) -> None:
        with TopologyTestDriver(counted(watermark=bounded_disorder("5s", idle="30s")), wall_clock=0) as driver:
            pipe(driver, 1, 3)
            driver.advance_wall_clock("1d")
            assert counts(driver) == []

    @pytest.mark.parametrize("make", [lambda: bounded_disorder(-1), lambda: monotonous(idle=0)])
    def test_impossible_durations_are_refused(self, make: Any) -> None:
        with pytest.raises((TopologyError, ValueError)):
            make()

    def test_following_the_clock_needs_a_time_to_wait_first(self) -> None:
        with pytest.raises(TopologyError, match="follow_wall_clock=True needs idle="):
            monotonous(follow_wall_clock=True)


class TestLateRecords:
    def topology(self, late: Any = None, disorder: str = "5s", **options: Any) -> Topology:
        builder = StreamsBuilder()
        clicks = builder.stream("in", value=str, watermark=bounded_disorder(disorder), late=late, **options)
        clicks.to("passed", value=str)
        clicks.late_records().to("late", value=str)
        return builder.build()

    def times(self, driver: TopologyTestDriver, topic: str) -> list[int]:
        return [record.timestamp // SECOND for record in driver.output(topic).records()]

    def test_without_a_policy_they_go_on_and_are_a_stream_besides(self) -> None:
        with TopologyTestDriver(self.topology()) as driver:
            pipe(driver, 10, 4, 5, 20, 14, 15)
            assert self.times(driver, "passed") == [10, 4, 5, 20, 14, 15]
            assert self.times(driver, "late") == [4, 14]

    def test_dropped_and_counted(self) -> None:
        with TopologyTestDriver(self.topology(log_and_continue())) as driver:
            pipe(driver, 10, 4, 5, 20, 14)
            assert self.times(driver, "passed") == [10, 5, 20]
            assert self.times(driver, "late") == [4, 14]
            assert [(reason, count) for (_, reason), count in driver.dropped().items()] == [("late", 2)]

    def test_as_dead_letters(self) -> None:
        with TopologyTestDriver(self.topology(dead_letter("too-late"))) as driver:
            pipe(driver, 10, 4)
            (letter,) = driver.output("too-late").records()
            assert (letter.key, letter.value, letter.timestamp) == (b"k", b"x", 4 * SECOND)
            headers = dict(letter.headers)
            assert headers["__streams.errors.message"] == b"The timestamp 4000 is before the watermark 5000."
            assert headers["__streams.errors.exception"] == b"penstock.errors.exceptions.LateRecordError"
            assert headers["__streams.errors.offset"] == b"1"

    def test_a_function_decides_for_each(self) -> None:
        def decide(failure: Failure) -> Any:
            assert isinstance(failure.error, LateRecordError)
            return dead_letter("too-late") if failure.timestamp > 3 * SECOND else log_and_continue()

        with TopologyTestDriver(self.topology(decide)) as driver:
            pipe(driver, 10, 4, 3)
            assert [letter.timestamp for letter in driver.output("too-late", key=bytes, value=bytes).records()] == [4 * SECOND]

    def test_they_may_end_the_application(self) -> None:
        with TopologyTestDriver(self.topology(log_and_fail())) as driver:
            pipe(driver, 10)
            with pytest.raises(ProcessingError, match=r"KSTREAM-LATE-.* failed on the record from in-0 at offset 1"):
                pipe(driver, 4)

    def test_of_a_table(self) -> None:
        builder = StreamsBuilder()
        builder.table("in", value=str, watermark=monotonous(), late=log_and_continue(), store="table")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe("new", key="k", timestamp=10)
            driver.input("in").pipe("old", key="k", timestamp=9)
            assert driver.store("table").get("k") == "new"

    def test_a_policy_needs_a_watermark(self) -> None:
        with pytest.raises(TopologyError, match="late= needs watermark="):
            StreamsBuilder().stream("in", late=log_and_continue())

    def test_a_late_record_is_not_tried_again(self) -> None:
        with pytest.raises(ConfigError, match="a late record stays late"):
            StreamsBuilder().stream("in", watermark=monotonous(), late=retry())

    def test_only_a_source_with_a_watermark_has_them(self) -> None:
        with pytest.raises(TopologyError, match="has no late records"):
            StreamsBuilder().stream("in").late_records()
