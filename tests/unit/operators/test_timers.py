"""The timers of a processor, in the test driver: what fires when, and what is rejected."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, cast

import pytest

from penstock import (
    FixedKeyProcessor,
    Processor,
    PunctuationType,
    StreamsBuilder,
    Timer,
    Topology,
    bounded_disorder,
    dead_letter,
    key_value_store,
    log_and_continue,
    retry,
    tumbling,
)
from penstock.errors import ProcessingError, TopologyError
from penstock.hosted import TimerKind
from penstock.operators.processors import sets_timers
from penstock.records import Record
from penstock.testing import TopologyTestDriver
from penstock.timing import Watermark


class Scripted(Processor[str, str, str, str]):
    """Does what the record says: `e5 name` event time at 5, `p5` processing time after 5 ms, `-name` deletes, `?` lists."""

    def process(self, record: Record[str, str]) -> None:
        self.obey(record.value, record)

    def obey(self, text: str, at: Any) -> None:
        timers = self.context.timers
        for part in filter(None, text.split(",")):
            word, _, name = part.partition(" ")
            if word.startswith("e"):
                timers.event_time(at=int(word[1:]), name=name)
            elif word.startswith("p"):
                timers.processing_time(after=int(word[1:]), name=name)
            elif word.startswith("-"):
                self.context.forward(Record(at.key, str(timers.delete(name)), 0))
            elif word == "?":
                listed = ", ".join(f"{timer.name}@{timer.time}" for timer in timers.all())
                self.context.forward(Record(at.key, listed, 0))

    def on_timer(self, timer: Timer) -> None:
        self.context.forward(timer.record(f"{timer.kind.name[0].lower()} {timer.name}@{timer.time}"))


def driver_of(supplier: Any, watermark: Watermark | None = None, **options: Any) -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.stream("in", value=str, watermark=watermark).process(supplier, name="p").to("out", key=str, value=str)
    return TopologyTestDriver(builder.build(), wall_clock=1_000, **options)


def feed(driver: TopologyTestDriver, *records: tuple[str, str, int]) -> list[tuple[Any, Any]]:
    for key, value, timestamp in records:
        driver.input("in").pipe(value, key=key, timestamp=timestamp)
    return driver.output("out").pairs()


class TestFiring:
    def test_event_time_timers_follow_stream_time(self) -> None:
        with driver_of(Scripted) as driver:
            assert feed(driver, ("a", "e100", 0), ("b", "e50", 99)) == [("b", "e @50")]
            assert feed(driver, ("c", "", 100)) == [("a", "e @100")]
            assert feed(driver, ("c", "", 5_000)) == []

    def test_processing_time_timers_follow_the_wall_clock(self) -> None:
        with driver_of(Scripted) as driver:
            assert feed(driver, ("a", "p10", 0), ("b", "p5", 10**9)) == []
            driver.advance_wall_clock(9)
            assert driver.output("out").pairs() == [("b", "p @1005")]
            driver.advance_wall_clock(1)
            assert driver.output("out").pairs() == [("a", "p @1010")]
            driver.advance_wall_clock("1d")
            assert driver.output("out").pairs() == []

    def test_they_fire_in_the_order_of_time_key_and_name(self) -> None:
        with driver_of(Scripted) as driver:
            feed(driver, ("b", "p5", 0), ("a", "p5 y,p5 x,p7", 0), ("c", "p4", 0))
            driver.advance_wall_clock(100)
            times = [(key, value[2:]) for key, value in driver.output("out").pairs()]
            assert times == [("c", "@1004"), ("a", "x@1005"), ("a", "y@1005"), ("b", "@1005"), ("a", "@1007")]

    def test_a_timer_that_is_already_due_fires_right_after_the_record(self) -> None:
        with driver_of(Scripted) as driver:
            assert feed(driver, ("a", "e3", 50)) == [("a", "e @3")]

    def test_a_record_of_a_timer_has_its_key_and_time(self) -> None:
        assert Timer("k", "n", 7, TimerKind.EVENT_TIME).record("v") == Record("k", "v", 7)
        with driver_of(Scripted) as driver:
            driver.input("in").pipe("p5", key="a", timestamp=0)
            driver.advance_wall_clock(50)
            assert [record.timestamp for record in driver.output("out").records()] == [1_005]


class TestKeyAndName:
    def test_registering_the_same_key_and_name_replaces_the_timer(self) -> None:
        with driver_of(Scripted) as driver:
            assert feed(driver, ("a", "e10,e20", 0), ("b", "e10", 0), ("z", "", 15)) == [("b", "e @10")]
            assert feed(driver, ("a", "e30", 16), ("z", "", 29)) == []
            assert feed(driver, ("z", "", 30)) == [("a", "e @30")]

    def test_registering_on_the_other_clock_replaces_it_too(self) -> None:
        with driver_of(Scripted) as driver:
            feed(driver, ("a", "e10,p10", 0))
            assert feed(driver, ("z", "", 100)) == []
            driver.advance_wall_clock(10)
            assert driver.output("out").pairs() == [("a", "p @1010")]

    def test_names_and_keys_keep_timers_apart(self) -> None:
        with driver_of(Scripted) as driver:
            feed(driver, ("a", "e10 x,e10 y", 0), ("b", "e10 x", 0))
            assert feed(driver, ("z", "", 10)) == [("a", "e x@10"), ("a", "e y@10"), ("b", "e x@10")]

    def test_a_deleted_timer_does_not_fire(self) -> None:
        with driver_of(Scripted) as driver:
            feed(driver, ("a", "e10 x,e10 y", 0))
            assert feed(driver, ("a", "- x,- x,?", 1)) == [("a", "True"), ("a", "False"), ("a", "y@10")]
            assert feed(driver, ("z", "", 10)) == [("a", "e y@10")]

    def test_the_timers_of_the_key_are_listed_by_name(self) -> None:
        with driver_of(Scripted) as driver:
            assert feed(driver, ("b", "e9 q", 0), ("a", "p5 z,e7,?", 0)) == [("a", "@7, z@1005")]
            assert feed(driver, ("c", "?", 0)) == [("c", "")]

    def test_one_timer_is_found_by_its_name(self) -> None:
        class Asking(Scripted):
            def process(self, record: Record[str, str]) -> None:
                self.context.timers.event_time(at="1970-01-01T00:00:10Z", name="x")
                assert self.context.timers.get("x") == Timer(record.key, "x", 10_000, TimerKind.EVENT_TIME)
                assert self.context.timers.get() is None

        with driver_of(Asking) as driver:
            feed(driver, ("a", "", 0))


class Chain(Processor[str, str, str, str]):
    """A timer that registers itself again: `step` ms after its own time."""

    def __init__(self, step: int) -> None:
        self.step = step

    def process(self, record: Record[str, str]) -> None:
        self.context.timers.event_time(after="0s")

    def on_timer(self, timer: Timer) -> None:
        self.context.forward(timer.record("fired"))
        self.context.timers.event_time(at=max(0, timer.time + self.step))


class TestTimersThatRegisterTimers:
    def test_a_timer_that_becomes_due_fires_in_the_same_round(self) -> None:
        with driver_of(partial(Chain, 10)) as driver:
            driver.input("in").pipe("", key="a", timestamp=5)
            driver.output("out").records()
            driver.input("in").pipe("", key="b", timestamp=38)
            found = [(record.key, record.timestamp) for record in driver.output("out").records()]
            assert found == [("a", 15), ("a", 25), ("a", 35), ("b", 38)]

    @pytest.mark.parametrize("step", [0, -1, -100])
    def test_a_timer_that_is_not_later_waits_for_the_clock_to_advance(self, step: int) -> None:
        with driver_of(partial(Chain, step)) as driver:
            driver.input("in").pipe("", key="a", timestamp=5)
            assert len(driver.output("out").records()) == 1
            driver.input("in").pipe("", key="b", timestamp=5)
            assert [record.key for record in driver.output("out").records()] == ["b"]
            driver.input("in").pipe("", key="c", timestamp=6)
            assert [(record.key, record.timestamp) for record in driver.output("out").records()] == [("a", 6), ("b", 6), ("c", 6)]

    def test_a_wall_clock_timer_due_now_waits_too(self) -> None:
        class AtOnce(Scripted):
            def on_timer(self, timer: Timer) -> None:
                super().on_timer(timer)
                self.context.timers.processing_time(after=0)

        with driver_of(AtOnce) as driver:
            feed(driver, ("a", "p5", 0))
            driver.advance_wall_clock(5)
            driver.advance_wall_clock(0)
            assert driver.output("out").pairs() == [("a", "p @1005")]
            driver.advance_wall_clock(1)
            assert driver.output("out").pairs() == [("a", "p @1006")]

    def test_timers_of_several_nodes_fire_in_the_order_of_time(self) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in", value=str)
        stream.process(Scripted, name="one").to("out", key=str, value=str)
        stream.map_values(lambda text: text.replace("p", "p1")).process(Scripted, name="two").to("out", key=str, value=str)
        with TopologyTestDriver(builder.build(), wall_clock=0) as driver:
            feed(driver, ("a", "p5 x,p15 y,p20 z", 0))
            driver.advance_wall_clock(1_000)
            fired = [value for _, value in driver.output("out").pairs()]
            assert fired == ["p x@5", "p y@15", "p x@15", "p z@20", "p y@115", "p z@120"]


class TestAfter:
    def test_it_counts_from_the_record_or_the_event_time_timer(self) -> None:
        class Relative(Scripted):
            def process(self, record: Record[str, str]) -> None:
                self.context.timers.event_time(after=timedelta(seconds=1))

            def on_timer(self, timer: Timer) -> None:
                super().on_timer(timer)
                self.context.timers.event_time(after="1s", name="again")

        with driver_of(Relative) as driver:
            assert feed(driver, ("a", "", 500), ("b", "", 1_600)) == [("a", "e @1500")]
            assert feed(driver, ("c", "", 2_499)) == []
            assert feed(driver, ("d", "", 2_600)) == [("a", "e again@2500"), ("b", "e @2600")]

    def test_in_a_wall_clock_timer_it_counts_from_the_current_event_time(self) -> None:
        class Mixed(Scripted):
            def on_timer(self, timer: Timer) -> None:
                super().on_timer(timer)
                if timer.kind is TimerKind.PROCESSING_TIME:
                    self.context.timers.event_time(after=10)

        with driver_of(Mixed) as driver:
            feed(driver, ("a", "p5", 70))
            driver.advance_wall_clock(5)
            assert feed(driver, ("b", "", 80)) == [("a", "p @1005"), ("a", "e @80")]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "either after= or at="),
            ({"after": 1, "at": 1}, "either after= or at="),
            ({"at": -1}, "must be between 0 and"),
            ({"at": datetime(1969, 1, 1, tzinfo=timezone.utc)}, "must be between 0 and"),
            ({"after": "2 weeks"}, "invalid duration '2 weeks'"),
        ],
    )
    def test_invalid_times_are_rejected(self, arguments: dict[str, Any], message: str) -> None:
        class Wrong(Scripted):
            def process(self, record: Record[str, str]) -> None:
                self.context.timers.event_time(**arguments)

        with driver_of(Wrong) as driver, pytest.raises((ProcessingError, TopologyError), match=message):
            feed(driver, ("a", "", 0))


class TestWatermark:
    def test_event_time_timers_wait_for_it_alone(self) -> None:
        with driver_of(Scripted, bounded_disorder("1d")) as driver:
            driver.advance_watermark(10)
            assert feed(driver, ("a", "e50", 0), ("b", "", 5_000)) == []
            driver.advance_watermark(49)
            assert driver.output("out").pairs() == []
            driver.advance_watermark("1970-01-01T00:00:00.050Z")
            assert driver.output("out").pairs() == [("a", "e @50")]

    def test_records_advance_it_as_their_source_declares(self) -> None:
        with driver_of(Scripted, bounded_disorder(100)) as driver:
            assert feed(driver, ("a", "e50", 0), ("b", "", 149)) == []
            assert feed(driver, ("b", "", 150)) == [("a", "e @50")]

    def test_without_a_watermark_it_cannot_be_advanced(self) -> None:
        with driver_of(Scripted) as driver, pytest.raises(TopologyError, match="no source was declared with watermark="):
            driver.advance_watermark(10)

    def test_it_does_not_go_back(self) -> None:
        with driver_of(Scripted, bounded_disorder("1d")) as driver:
            driver.advance_watermark(100)
            driver.advance_watermark(10)
            assert feed(driver, ("a", "e50", 0)) == []
            assert feed(driver, ("b", "", 0)) == [("a", "e @50")]


class TestState:
    def test_a_timer_may_use_stores_and_the_context(self) -> None:
        class Pending(Processor[str, str, str, str]):
            def process(self, record: Record[str, str]) -> None:
                self.context.store("pending")[record.key] = record.value
                self.context.timers.processing_time(after="10s")

            def on_timer(self, timer: Timer) -> None:
                assert self.context.record_metadata is None
                value = self.context.store("pending").delete(timer.key)
                self.context.forward(timer.record(f"gave up on {value}"))

        builder = StreamsBuilder()
        builder.add_state_store(key_value_store("pending", value=str))
        builder.stream("in", value=str).process(Pending, stores=["pending"]).to("out", key=str, value=str)
        with TopologyTestDriver(builder.build(), wall_clock=0) as driver:
            feed(driver, ("a", "x", 0))
            driver.advance_wall_clock("10s")
            assert driver.output("out").pairs() == [("a", "gave up on x")]
            assert len(list(driver.store("pending").all())) == 0

    def test_a_fixed_key_processor_has_timers_and_keeps_its_keys(self) -> None:
        class Fixed(FixedKeyProcessor[str, str, str]):
            def process(self, record: Record[str, str]) -> None:
                self.context.timers.processing_time(after=1)

            def on_timer(self, timer: Timer) -> None:
                self.context.forward(timer.record("fine"))
                self.context.forward(Record("other", "not fine", 0))

        builder = StreamsBuilder()
        builder.stream("in", value=str).process_values(Fixed).to("out", value=str)
        with TopologyTestDriver(builder.build(), wall_clock=0) as driver:
            feed(driver, ("a", "x", 0))
            with pytest.raises(ProcessingError, match="must not change the key"):
                driver.advance_wall_clock(1)


class TestDeclaring:
    @pytest.mark.parametrize("supplier", [Scripted, partial(Chain, 1), partial(partial(Chain), 1), lambda: Chain(1)])
    def test_a_class_that_overrides_on_timer_has_timers(self, supplier: Any) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str).process(supplier, name="p").to("out", key=str, value=str)
        topology = builder.build()
        assert list(topology.stores) == ["p-timers"]
        assert "Processor: p (stores: [p-timers])" in topology.describe()

    def test_a_class_without_on_timer_has_no_timers(self) -> None:
        class Plain(Processor[str, str, str, str]):
            def process(self, record: Record[str, str]) -> None:
                self.context.timers.processing_time(after=1)

        def failing() -> Plain:
            raise RuntimeError("not here")

        suppliers: list[Any] = [Plain, lambda: Plain(*()), failing, partial(Plain), lambda: 5]
        assert not any(map(sets_timers, suppliers))
        with driver_of(Plain) as driver, pytest.raises(TopologyError, match="p has no timers: override on_timer"):
            feed(driver, ("a", "", 0))

    def test_keys_are_serialized_by_the_key_serde_of_the_input(self) -> None:
        builder = StreamsBuilder()
        scripted: Any = Scripted  # a processor of text, under other keys
        stream = builder.stream("in", key=int, value=str)
        stream.process(scripted, name="plain").to("out", key=int, value=str)
        stream.group_by_key().windowed_by(tumbling("1s")).count().to_stream().map_values(str).process(scripted, name="windowed")
        stream.select_key(lambda key, _: str(key)).process(Scripted, name="unknown")
        specs = builder.build().stores
        found = {name: type(specs[f"{name}-timers"].key).__name__ for name in ("plain", "windowed", "unknown")}
        assert found == {"plain": "Int64", "windowed": "TimeWindowed", "unknown": "String"}

    def test_a_key_that_cannot_be_serialized_is_reported_with_the_cure(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str).select_key(lambda key, _: 5).process(cast("Any", Scripted), name="p")
        with (
            TopologyTestDriver(builder.build()) as driver,
            pytest.raises(ProcessingError, match=r"String\(\), cannot serialize the timer's key 5.*key="),
        ):
            driver.input("in").pipe("e5", key="a", timestamp=0)

    def test_a_record_without_a_key_has_no_timers(self) -> None:
        with (
            driver_of(Scripted) as driver,
            pytest.raises(ProcessingError, match="Records without a key and punctuators cannot have timers"),
        ):
            driver.input("in").pipe("e5", timestamp=0)

    def test_a_punctuator_has_no_timers(self) -> None:
        class Punctuating(Scripted):
            def init(self, context: Any) -> None:
                super().init(context)
                context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, lambda time: self.context.timers.event_time(at=5))

        with driver_of(Punctuating) as driver:
            feed(driver, ("a", "e500", 0))
            with pytest.raises(ProcessingError, match="Records without a key and punctuators cannot have timers"):
                driver.advance_wall_clock("1s")

    def test_in_the_processor_api_keys_are_those_of_the_sources_above(self) -> None:
        topology = Topology().add_source("one", "in", key=int, value=str).add_source("two", "in2", key=int, value=str)
        topology.add_processor("p", Scripted, "one", "two").add_processor("q", Scripted, "p")
        assert {spec.name: type(spec.key).__name__ for spec in topology.stores.values()} == {
            "p-timers": "Int64",
            "q-timers": "Int64",
        }
        topology.add_source("three", "in3", key=str)
        with pytest.raises(TopologyError, match=r"Timers of 'r'.*three: String\(\)"):
            topology.add_processor("r", Scripted, "one", "three")


class TestFailures:
    class Failing(Scripted):
        def on_timer(self, timer: Timer) -> None:
            raise RuntimeError(f"no {timer.name}")

    def test_a_timer_that_fails_is_named(self) -> None:
        with driver_of(self.Failing) as driver:
            feed(driver, ("a", "p5 x", 0))
            with pytest.raises(ProcessingError, match=r"p failed on the record from a timer.*key 'a'.*no x(.|\n)*test_timers.py"):
                driver.advance_wall_clock(5)

    def test_a_failed_timer_is_deleted_if_the_handler_continues(self) -> None:
        with driver_of(self.Failing, processing_errors=log_and_continue()) as driver:
            feed(driver, ("a", "p5 x,p6 y", 0))
            driver.advance_wall_clock(5)
            driver.advance_wall_clock(5)
            assert driver.dropped() == {("p", "processing error"): 2}

    def test_its_dead_letter_has_its_key_and_time(self) -> None:
        with driver_of(self.Failing, processing_errors=dead_letter("dead")) as driver:
            feed(driver, ("a", "p5 x", 0))
            driver.advance_wall_clock(50)
            [letter] = driver.output("dead").records()
            assert (letter.key, letter.value, letter.timestamp) == (b"a", None, 1_005)

    def test_a_failed_timer_is_retried_unless_it_has_registered_a_timer(self) -> None:
        calls: list[str] = []

        class Flaky(Scripted):
            def on_timer(self, timer: Timer) -> None:
                calls.append(timer.name)
                if timer.name == "sets":
                    self.context.timers.delete("none")
                assert self.context.timers.get("none") is None
                if len(calls) < 3:
                    raise RuntimeError("not yet")

        with driver_of(Flaky, processing_errors=retry(5, then=log_and_continue())) as driver:
            feed(driver, ("a", "p5 clean", 0))
            driver.advance_wall_clock(5)
            assert calls == ["clean"] * 3
            calls.clear()
            feed(driver, ("a", "p5 sets", 0))
            driver.advance_wall_clock(5)
            assert calls == ["sets"]
