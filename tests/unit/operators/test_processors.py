"""User processors: what their context can do, and how their mistakes are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    FixedKeyProcessor,
    PenstockError,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    Topology,
    ValueTransformer,
    key_value_store,
)
from penstock.errors import ProcessingError, TopologyError
from penstock.testing import TopologyTestDriver

AnyProcessor = Processor[Any, Any, Any, Any]


def processor(process: Callable[[AnyProcessor, Record[Any, Any]], None]) -> type[AnyProcessor]:
    """A processor class of one function."""
    return type("Made", (Processor,), {"process": process})


def topology(supplier: Any, *children: str) -> Topology:
    made = Topology().add_source("in", "in").add_processor("p", supplier, "in")
    for child in children or ("out",):
        made.add_sink(child, child, "p")
    return made


class TestForwarding:
    def test_a_record_goes_to_all_children_or_to_the_named_one(self) -> None:
        def route(self: AnyProcessor, record: Record[Any, Any]) -> None:
            self.context.forward(record, child=record.key)

        with TopologyTestDriver(topology(processor(route), "one", "two")) as driver:
            driver.input("in").pipe_pairs([("one", 1), (None, 2), ("two", 3)])
            assert (driver.output("one").values(), driver.output("two").values()) == ([1, 2], [2, 3])

    def test_an_unknown_child_is_rejected_with_the_known_ones(self) -> None:
        def route(self: AnyProcessor, record: Record[Any, Any]) -> None:
            self.context.forward(record, child="typo")

        with (
            TopologyTestDriver(topology(processor(route), "one", "two")) as driver,
            pytest.raises(TopologyError, match=r"p has no child 'typo'. Its children: one, two"),
        ):
            driver.input("in").pipe(1)

    def test_a_processor_without_children_says_so(self) -> None:
        def route(self: AnyProcessor, record: Record[Any, Any]) -> None:
            self.context.forward(record, child="typo")

        alone = Topology().add_source("in", "in").add_processor("p", processor(route), "in")
        with TopologyTestDriver(alone) as driver, pytest.raises(TopologyError, match="Its children: none"):
            driver.input("in").pipe(1)

    def test_a_record_may_get_another_time_and_other_headers(self) -> None:
        def change(self: AnyProcessor, record: Record[Any, Any]) -> None:
            self.context.forward(record.with_timestamp(99).with_headers((*record.headers, ("b", None))))

        with TopologyTestDriver(topology(processor(change))) as driver:
            driver.input("in").pipe(1, timestamp=5, headers=(("a", b"1"),))
            assert driver.output("out").read() == Record(None, 1, 99, (("a", b"1"), ("b", None)))

    def test_a_negative_timestamp_is_rejected(self) -> None:
        def change(self: AnyProcessor, record: Record[Any, Any]) -> None:
            self.context.forward(record.with_timestamp(-1))

        with (
            TopologyTestDriver(topology(processor(change))) as driver,
            pytest.raises(ProcessingError, match="p: invalid record timestamp -1: it must be 0 or later"),
        ):
            driver.input("in").pipe(1)


class TestFixedKeys:
    def ran(self, process: Callable[[Any, Record[Any, Any]], None]) -> list[tuple[Any, Any]]:
        builder = StreamsBuilder()
        made = type("Made", (FixedKeyProcessor,), {"process": process})
        builder.stream("in").process_values(made, name="p").to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe(1, key="k")
            return driver.output("out").pairs()

    def test_the_value_may_change(self) -> None:
        assert self.ran(lambda self, record: self.context.forward(record.with_value(2))) == [("k", 2)]

    def test_an_equal_key_is_the_same_key(self) -> None:
        assert self.ran(lambda self, record: self.context.forward(record.with_key(str(record.key)))) == [("k", 1)]

    def test_a_changed_key_is_rejected(self) -> None:
        with pytest.raises(ProcessingError, match=r"p: a FixedKeyProcessor must not change the key. Use process\(\) instead"):
            self.ran(lambda self, record: self.context.forward(record.with_key("other")))


class TestFailures:
    def test_name_the_node_the_users_line_and_the_record(self) -> None:
        def fail(self: AnyProcessor, record: Record[Any, Any]) -> None:
            raise RuntimeError("no")

        builder = StreamsBuilder()
        builder.stream("in").process(processor(fail), name="p")
        with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError) as caught:
            driver.input("in").pipe(1, key="k")
        assert str(caught.value).startswith("p failed on the record from in-0 at offset 0 (key 'k'): RuntimeError: no\n")
        assert f"{__file__}:" in str(caught.value)
        assert caught.value.code == "processing"

    def test_a_failure_downstream_is_reported_once_by_its_own_node(self) -> None:
        builder = StreamsBuilder()
        passing = processor(lambda self, record: self.context.forward(record))
        builder.stream("in").process(passing, name="above").map_values(lambda value: 1 / value, name="below").to("out")
        with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError) as caught:
            driver.input("in").pipe(0)
        assert str(caught.value).startswith("below failed")
        assert str(caught.value).count("failed") == 1

    def test_a_failing_init_names_the_node_and_the_users_line(self) -> None:
        class Failing(AnyProcessor):
            def init(self, context: Any) -> None:
                raise RuntimeError("no")

        with pytest.raises(PenstockError, match=r"(?s)p .*RuntimeError: no.*test_processors.py"):
            TopologyTestDriver(topology(Failing))

    def test_an_unknown_store_in_init_is_a_topology_error(self) -> None:
        class Asking(AnyProcessor):
            def init(self, context: Any) -> None:
                context.store("kept")

        with pytest.raises(TopologyError, match=r"Unknown store 'kept'. Stores of the topology: none"):
            TopologyTestDriver(topology(Asking))

    def test_a_value_that_cannot_be_serialized_names_the_node_that_put_it(self) -> None:
        def put(self: AnyProcessor, record: Record[Any, Any]) -> None:
            self.context.store("kept")[record.key] = "no number"

        made = topology(processor(put)).add_state_store(key_value_store("kept", value=int), "p")
        with (
            TopologyTestDriver(made) as driver,
            pytest.raises(ProcessingError, match="p failed on the record from in-0 at offset 0"),
        ):
            driver.input("in").pipe(1, key="k")

    def test_a_supplier_must_return_a_processor(self) -> None:
        with pytest.raises(TopologyError, match="p: the supplier must return a Processor, not a dict"):
            TopologyTestDriver(topology(dict))

    def test_a_processor_without_process_fails_at_its_first_record(self) -> None:
        with TopologyTestDriver(topology(Processor)) as driver, pytest.raises(ProcessingError, match="NotImplementedError"):
            driver.input("in").pipe(1)


class TestStores:
    def look(self, store: str) -> type[AnyProcessor]:
        return processor(lambda self, record: self.context.forward(record.with_value(self.context.store(store).get(record.key))))

    def test_must_be_connected(self) -> None:
        made = topology(self.look("kept")).add_state_store(key_value_store("kept"))
        with (
            TopologyTestDriver(made) as driver,
            pytest.raises(
                TopologyError, match=r"p uses store 'kept' without being connected to it \(.*test_processors.py.*stores="
            ),
        ):
            driver.input("in").pipe(1, key="k")

    def test_must_exist(self) -> None:
        made = topology(self.look("typo")).add_state_store(key_value_store("kept"), "p")
        with (
            TopologyTestDriver(made) as driver,
            pytest.raises(TopologyError, match=r"Unknown store 'typo'. Stores of the topology: kept"),
        ):
            driver.input("in").pipe(1, key="k")

    def test_persist_from_record_to_record(self) -> None:
        def count(self: AnyProcessor, record: Record[Any, Any]) -> None:
            store = self.context.store("kept")
            store[record.key] = (store.get(record.key) or 0) + 1
            self.context.forward(record.with_value(store[record.key]))

        made = topology(processor(count)).add_state_store(key_value_store("kept", value=int), "p")
        with TopologyTestDriver(made) as driver:
            driver.input("in").pipe_pairs([("a", 0), ("a", 0), ("b", 0)])
            assert driver.output("out").pairs() == [("a", 1), ("a", 2), ("b", 1)]


class Ticking(AnyProcessor):
    """Sends every tick of its punctuators; the class says how they are scheduled."""

    kind = PunctuationType.STREAM_TIME
    start: int | None = None
    stop_after: int | None = None
    transient = ("ticks",)

    def init(self, context: Any) -> None:
        super().init(context)
        self.ticks = 0
        self.scheduled = context.schedule(10, self.kind, self.tick, start=self.start)

    def tick(self, timestamp: int) -> None:
        self.ticks += 1
        self.context.forward(Record("tick", timestamp, timestamp))
        if self.ticks == self.stop_after:
            self.scheduled.cancel()

    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "stop":
            self.scheduled.cancel()


def ticks(times: list[int], **how: Any) -> list[int]:
    made = topology(type("Made", (Ticking,), how))
    with TopologyTestDriver(made, wall_clock=100) as driver:
        for time in times:
            driver.input("in").pipe("x", timestamp=time)
        return driver.output("out").values()


class TestStreamTimePunctuators:
    def test_fire_at_the_first_record_and_then_aligned_to_zero(self) -> None:
        assert ticks([3, 9, 10, 19, 20]) == [3, 10, 20]

    def test_a_jump_fires_once_and_keeps_the_alignment(self) -> None:
        assert ticks([3, 47, 49, 50]) == [3, 47, 50]

    def test_late_records_do_not_fire(self) -> None:
        assert ticks([50, 10, 20]) == [50]

    def test_may_start_later(self) -> None:
        assert ticks([3, 24, 25, 34, 35], start=25) == [25, 35]

    def test_cancelled_from_inside_fires_no_more(self) -> None:
        assert ticks([3, 10, 20, 30], stop_after=2) == [3, 10]

    def test_cancelled_from_outside_fires_no_more(self) -> None:
        with TopologyTestDriver(topology(Ticking)) as driver:
            topic = driver.input("in")
            topic.pipe("x", timestamp=3)
            topic.pipe("stop", timestamp=4)
            topic.pipe("x", timestamp=10)
            assert driver.output("out").values() == [3]


class TestWallClockPunctuators:
    def ticks(self, advances: list[int], **how: Any) -> list[int]:
        made = topology(type("Made", (Ticking,), {"kind": PunctuationType.WALL_CLOCK_TIME, **how}))
        with TopologyTestDriver(made, wall_clock=100) as driver:
            for advance in advances:
                driver.advance_wall_clock(advance)
            return driver.output("out").values()

    def test_fire_an_interval_after_they_were_scheduled(self) -> None:
        assert self.ticks([9, 1, 5, 5]) == [110, 120]

    def test_a_jump_fires_once(self) -> None:
        assert self.ticks([35, 4, 1]) == [135, 140]

    def test_may_be_anchored_in_the_past(self) -> None:
        assert self.ticks([3, 1, 1, 9, 1], start=95) == [105, 115]

    def test_may_start_later(self) -> None:
        assert self.ticks([20, 10, 10], start=125) == [130, 140]


class TestPunctuators:
    def test_an_interval_is_at_least_a_millisecond(self) -> None:
        class Hasty(AnyProcessor):
            def init(self, context: Any) -> None:
                context.schedule(0, PunctuationType.STREAM_TIME, lambda now: None)

        with pytest.raises(
            ProcessingError, match=r"(?s)p failed to start: .*interval of a punctuator must be at least 1 ms.*test_processors.py"
        ):
            TopologyTestDriver(topology(Hasty))

    def test_a_failure_names_the_node_and_a_timer(self) -> None:
        class Failing(Ticking):
            def tick(self, timestamp: int) -> None:
                raise RuntimeError("no")

        with (
            TopologyTestDriver(topology(Failing)) as driver,
            pytest.raises(
                ProcessingError, match=r"(?s)p failed on the record from a timer.*RuntimeError: no.*test_processors.py"
            ),
        ):
            driver.input("in").pipe("x")

    def test_a_failure_below_is_reported_once_by_its_own_node(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").process(Ticking, name="tick").foreach(lambda key, value: 1 // 0, name="below")
        with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError) as caught:
            driver.input("in").pipe("x")
        assert str(caught.value).startswith("below failed on the record from a timer")

    def test_have_no_record_metadata(self) -> None:
        seen: list[Any] = []

        class Looking(Ticking):
            def tick(self, timestamp: int) -> None:
                seen.append(self.context.record_metadata)

        with TopologyTestDriver(topology(Looking)) as driver:
            driver.input("in").pipe("x")
        assert seen == [None]

    def test_an_unknown_child_is_a_topology_error(self) -> None:
        class Routing(Ticking):
            def tick(self, timestamp: int) -> None:
                self.context.forward(Record(None, None, 0), child="typo")

        with TopologyTestDriver(topology(Routing)) as driver, pytest.raises(TopologyError, match="no child 'typo'"):
            driver.input("in").pipe("x")


def test_a_value_transformer_without_transform_fails_at_its_first_value() -> None:
    builder = StreamsBuilder()
    builder.table("in").transform_values(ValueTransformer, name="t").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError, match=r"t failed.*NotImplementedError"):
        driver.input("in").pipe(1, key="k")
