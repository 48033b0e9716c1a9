"""`TopologyTestDriver`: topics, time, stores, records that come back as input, and its error messages."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from penstock import Processor, PunctuationType, Record, RecordMetadata, StreamsBuilder, Topology, key_value_store
from penstock.errors import ProcessingError, SerializationError, TopologyError
from penstock.testing import TopologyTestDriver


def copying() -> Topology:
    return Topology().add_source("in", "in", value=str).add_sink("out", "out", "in", value=str)


class TestTopics:
    def test_an_unknown_input_is_refused_with_those_that_exist(self) -> None:
        topology = copying().add_source("more", "b", "a")
        with (
            TopologyTestDriver(topology) as driver,
            pytest.raises(TopologyError, match=r"reads no topic 'typo'\. It reads: a, b, in"),
        ):
            driver.input("typo")
        with TopologyTestDriver(Topology()) as driver, pytest.raises(TopologyError, match="It reads: none"):
            driver.input("typo")

    def test_an_unknown_output_is_refused_with_those_that_exist(self) -> None:
        with (
            TopologyTestDriver(copying()) as driver,
            pytest.raises(TopologyError, match=r"writes no topic 'typo'\. It writes: out"),
        ):
            driver.output("typo")
        with TopologyTestDriver(Topology()) as driver, pytest.raises(TopologyError, match="It writes: none"):
            driver.output("typo", key=str)

    def test_an_output_the_topology_does_not_know_can_be_read_with_both_serdes(self) -> None:
        with TopologyTestDriver(copying()) as driver:
            assert driver.output("elsewhere", key=str, value=str).is_empty

    def test_exchanges_are_not_topics(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").select_key(lambda key, value: "k").repartition(name="by-key").to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe(1)
            assert driver.produced_topic_names() == {"out"}
            with pytest.raises(TopologyError, match="writes no topic 'by-key-repartition'"):
                driver.output("by-key-repartition")

    def test_nothing_is_produced_before_something_is_written(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").filter(lambda key, value: value > 1).to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe(1)
            assert driver.produced_topic_names() == set()
            driver.input("in").pipe(2)
            assert driver.produced_topic_names() == {"out"}

    def test_a_record_for_several_partitions_is_written_several_times(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to("out", partitioner=lambda topic, key, value, partitions: range(value))
        with TopologyTestDriver(builder.build(), partitions=2) as driver:
            driver.input("in").pipe_values([0, 2])
            assert driver.output("out").values() == [2, 2]

    def test_a_partitioner_may_leave_the_choice_to_kafka(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to("out", partitioner=lambda topic, key, value, partitions: None)
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe(1)
            assert driver.output("out").values() == [1]

    def test_offsets_count_along_each_topic(self) -> None:
        seen: list[RecordMetadata | None] = []

        class Look(Processor[Any, Any, Any, Any]):
            def process(self, record: Record[Any, Any]) -> None:
                seen.append(self.context.record_metadata)

        topology = Topology().add_source("in", "a", "b", value=str).add_processor("look", Look, "in")
        with TopologyTestDriver(topology) as driver:
            for topic in ("a", "b", "a"):
                driver.input(topic).pipe("x")
        assert seen == [RecordMetadata("a", 0, 0), RecordMetadata("b", 0, 0), RecordMetadata("a", 0, 1)]

    def test_bytes_the_serde_cannot_read_name_the_source_and_the_record(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=int, name="numbers").to("out")
        with TopologyTestDriver(builder.build()) as driver:
            with pytest.raises(
                ProcessingError, match=r"(?s)numbers cannot read the record from in-0 at offset 0.*test_driver.py"
            ) as caught:
                driver.input("in", value=bytes).pipe(b"no number")
            assert isinstance(caught.value.__cause__, SerializationError)

    def test_an_extractor_that_fails_names_the_source_and_the_record(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", timestamp=lambda record: record.value["at"], name="events").to("out")
        with (
            TopologyTestDriver(builder.build()) as driver,
            pytest.raises(
                ProcessingError, match=r"(?s)timestamp extractor of events failed .*in-0 at offset 0: KeyError.*test_driver.py"
            ),
        ):
            driver.input("in").pipe({})


class TestLoops:
    def test_pending_records_are_processed_by_time(self) -> None:
        """Of two records that come back as input, the earlier one is processed first, whatever their order."""
        builder = StreamsBuilder()
        start = builder.stream("in")
        start.map_values(lambda value: ["late", value]).process(Delay).to("one")
        start.map_values(lambda value: ["early", value]).to("two")
        builder.stream("one").merge(builder.stream("two")).to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe(1, timestamp=0)
            assert driver.output("out").values() == [["early", 1], ["late", 1]]

    def test_a_topic_that_a_global_table_reads_fills_it(self) -> None:
        builder = StreamsBuilder()
        rates = builder.global_table("rates", store="rates")
        builder.stream("changes").to("rates")
        builder.stream("in").left_join(rates, lambda value, rate: rate, on=lambda key, value: key).to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("changes").pipe(2, key="chf")
            driver.input("in").pipe("?", key="chf")
            assert driver.store("rates")["chf"] == 2
            assert driver.output("rates").pairs() == [("chf", 2)]
            assert driver.output("out").values() == [2]


class Delay(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_timestamp(record.timestamp + 100))


class Clocks(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, lambda now: context.forward(Record("wall", now, now)))

    def process(self, record: Record[Any, Any]) -> None:
        times = [self.context.current_stream_time_ms(), self.context.current_system_time_ms()]
        self.context.forward(record.with_value(times))


class TestTime:
    def test_the_wall_clock_starts_at_the_given_time_and_moves_by_hand(self) -> None:
        topology = Topology().add_source("in", "in", value=str).add_processor("p", Clocks, "in").add_sink("out", "out", "p")
        with TopologyTestDriver(topology, wall_clock=5000) as driver:
            driver.input("in").pipe("x", key="k", timestamp=70)
            driver.advance_wall_clock("500ms")
            driver.input("in").pipe("x", key="k", timestamp=60)
            driver.advance_wall_clock("500ms")
            assert driver.output("out").pairs() == [("k", [70, 5000]), ("k", [70, 5500]), ("wall", 6000)]

    def test_the_wall_clock_may_start_at_a_date(self) -> None:
        start = datetime(2024, 1, 1, tzinfo=timezone.utc)
        with TopologyTestDriver(copying(), wall_clock=start) as driver:
            driver.input("in").pipe("x")
            assert driver.output("out").read().timestamp == 1_704_067_200_000

    def test_without_a_start_the_wall_clock_is_the_real_one(self) -> None:
        with TopologyTestDriver(copying()) as driver:
            driver.input("in").pipe("x")
            now = datetime.now(timezone.utc).timestamp() * 1000
            assert abs(driver.output("out").read().timestamp - now) < 60_000

    def test_records_of_a_wall_clock_punctuator_are_processed_at_once(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").process(Clocks, value=int).to("ticks")
        builder.stream("ticks", value=int).group_by_key().count(store="n").to_stream().to("out")
        with TopologyTestDriver(builder.build(), wall_clock=0) as driver:
            driver.advance_wall_clock("1s")
            assert driver.output("out").pairs() == [("wall", 1)]


class TestStores:
    def test_stores_can_be_read_and_filled(self) -> None:
        class Look(Processor[Any, Any, Any, Any]):
            def process(self, record: Record[Any, Any]) -> None:
                self.context.forward(record.with_value(self.context.store("kept").get(record.key)))

        topology = Topology().add_source("in", "in", value=str).add_state_store(key_value_store("kept", value=int))
        topology.add_processor("look", Look, "in", stores=["kept"]).add_sink("out", "out", "look")
        with TopologyTestDriver(topology) as driver:
            driver.store("kept")["a"] = 5
            driver.input("in").pipe("?", key="a")
            assert driver.output("out").values() == [5]
            assert list(driver.stores()) == ["kept"]
            assert driver.stores()["kept"]["a"] == 5

    def test_an_unknown_store_is_refused_with_those_that_exist(self) -> None:
        topology = copying().add_state_store(key_value_store("kept"))
        with (
            TopologyTestDriver(topology) as driver,
            pytest.raises(TopologyError, match=r"Unknown store 'typo'. Stores of the topology: kept"),
        ):
            driver.store("typo")


def test_closing_closes_processors() -> None:
    closed: list[str] = []

    class Closing(Processor[Any, Any, Any, Any]):
        def close(self) -> None:
            closed.append("closed")

    with TopologyTestDriver(Topology().add_source("in", "in").add_processor("p", Closing, "in")):
        assert not closed
    assert closed == ["closed"]


def test_a_global_table_skips_records_without_a_key() -> None:
    builder = StreamsBuilder()
    builder.global_table("facts", store="facts")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("facts").pipe_pairs([("a", 1), (None, 2), ("b", None)], start=5)
        assert dict(driver.store("facts").items()) == {"a": 1}
