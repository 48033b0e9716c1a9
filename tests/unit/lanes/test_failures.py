"""What a lane does about records that fail: stop, drop them, or write dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock import (
    Failure,
    KStream,
    Processor,
    PunctuationType,
    RecordMetadata,
    Store,
    StreamsBuilder,
    Topology,
    dead_letter,
    log_and_continue,
    log_and_fail,
    retry,
    until_time_limit,
)
from penstock.errors import ProcessingError
from penstock.handlers import ErrorHandlers, FailureKind
from penstock.lanes.bound_shard import BoundShard
from penstock.lanes.failures import FailurePolicy, dead_letter_row
from penstock.lanes.outbox import Row, RowKind
from penstock.letters import LONGEST_MESSAGE, LONGEST_TRACE
from penstock.records import LAST_TIMESTAMP, Headers
from penstock.testing import TopologyTestDriver
from penstock.topology import ProcessorNode
from tests.unit.lanes.feeding import Raw, batch, lane_of, walk

CONTINUE = log_and_continue()
DEAD = dead_letter("dead")
NANOSECONDS = 1_794_778_322_590_913_092


def inverse(value: int) -> float:
    return 1 / value


def inverting() -> Topology:
    builder = StreamsBuilder()
    numbers = builder.stream("in", value=int, name="in").map(lambda key, value: (f"{key}!", value - 1))
    numbers.map_values(inverse, name="invert").to("out", value=float)
    return builder.build()


def text(headers: Headers) -> dict[str, str | None]:
    return {name: None if data is None else data.decode() for name, data in headers}


def lane_with(topology: Topology, handlers: ErrorHandlers) -> BoundShard:
    return lane_of(topology, policy=FailurePolicy(handlers, "app", epoch=12))


class TestProcessing:
    def test_log_and_continue_drops_and_counts_the_record(self) -> None:
        with TopologyTestDriver(inverting(), processing_errors=CONTINUE) as driver:
            driver.input("in").pipe_pairs([("a", 2), ("b", 1), ("c", 3)])
            assert driver.output("out").pairs() == [("a!", 1.0), ("c!", 0.5)]
            assert driver.dropped() == {("invert", "processing error"): 1}

    def test_a_memory_error_is_not_handled_as_a_records_failure(self) -> None:
        """The epoch is retried with fewer records; the handler decides only about a single record."""

        def hungry(value: int) -> int:
            raise MemoryError

        builder = StreamsBuilder()
        builder.stream("in", value=int).peek(lambda key, value: None).map_values(hungry).to("out", value=int)
        with TopologyTestDriver(builder.build(), processing_errors=CONTINUE) as driver:
            with pytest.raises(MemoryError):
                driver.input("in").pipe_pairs([("a", 2)])
            assert driver.dropped() == {}

    def test_nodes_beside_and_above_are_not_affected(self) -> None:
        builder = StreamsBuilder()
        numbers = builder.stream("in", value=int).peek(lambda key, value: None)
        numbers.to("before", value=int)
        numbers.map_values(inverse, name="invert").to("inverted", value=float)
        numbers.to("after", value=int)
        with TopologyTestDriver(builder.build(), processing_errors=CONTINUE) as driver:
            driver.input("in").pipe(0)
            assert [driver.output(topic).values() for topic in ("before", "inverted", "after")] == [[0], [], [0]]
            assert driver.dropped() == {("invert", "processing error"): 1}

    def test_results_forwarded_before_the_failure_are_kept(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=int).flat_map_values(lambda value: (1 / n for n in (1, 2, value))).to("out", value=float)
        with TopologyTestDriver(builder.build(), processing_errors=CONTINUE) as driver:
            driver.input("in").pipe(0)
            assert driver.output("out").values() == [1.0, 0.5]

    def test_a_dead_letter_is_the_record_as_read_with_headers_about_the_failure(self) -> None:
        with TopologyTestDriver(inverting(), processing_errors=DEAD) as driver:
            driver.input("in").pipe(5, key="a", timestamp=3)
            driver.input("in").pipe(1, key="b", timestamp=4, headers=(("trace", b"\xff"), ("none", None)))
            [record] = driver.output("dead").records()
            assert (record.key, record.value, record.timestamp) == (b"b", (1).to_bytes(8, "big"), 4)
            assert record.headers[:2] == (("trace", b"\xff"), ("none", None))
            headers = text(record.headers[2:])
            trace = headers.pop("__streams.errors.stacktrace") or ""
            assert int(headers.pop("__penstock.errors.time") or "") > 0
            assert headers == {
                "__streams.errors.exception": "ZeroDivisionError",
                "__streams.errors.message": "division by zero",
                "__streams.errors.topic": "in",
                "__streams.errors.partition": "0",
                "__streams.errors.offset": "1",
                "__penstock.errors.kind": "processing",
                "__penstock.errors.node": "invert",
                "__penstock.errors.application": "topology-test-driver",
                "__penstock.errors.epoch": "2",
                "__penstock.errors.read-from": "in",
            }
            assert "return 1 / value" in trace
            assert "invert failed on the record from in-0 at offset 1 (key 'b!')" in trace
            assert "test_failures.py" in trace.splitlines()[-1]
            assert driver.output("out").pairs() == [("a!", 0.25)]
            assert driver.dropped() == {("invert", "dead letter"): 1}

    def test_behind_an_exchange_a_dead_letter_is_the_exchanged_record(self) -> None:
        builder = StreamsBuilder()
        by_value = builder.stream("in", value=int).select_key(lambda key, value: f"k{value}").repartition(name="by")
        by_value.map_values(inverse, name="invert").to("out", value=float)
        with TopologyTestDriver(builder.build(), processing_errors=DEAD) as driver:
            driver.input("in").pipe(0, key="a")
            record = driver.output("dead", key=str, value=int).read()
            assert (record.key, record.value) == ("k0", 0)
            assert text(record.headers)["__streams.errors.topic"] == "by-repartition"

    def test_a_record_held_back_by_a_buffer_keeps_its_origin(self) -> None:
        builder = StreamsBuilder()
        held = builder.table("in", value=int).suppress(until_time_limit("10ms"))
        held.to_stream().map_values(inverse, name="invert").to("out", value=float)
        with TopologyTestDriver(builder.build(), processing_errors=DEAD) as driver:
            driver.input("in").pipe(0, key="a", timestamp=0)
            driver.input("in").pipe(1, key="b", timestamp=20)
            [record] = driver.output("dead").records()
            assert (record.key, record.value) == (None, None)
            assert text(record.headers)["__streams.errors.offset"] == "0"

    def test_a_punctuator_that_fails_is_called_again_when_it_is_due(self) -> None:
        calls: list[int] = []

        class Failing(Processor[Any, Any, Any, Any]):
            def init(self, context: Any) -> None:
                context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, self.punctuate)

            def punctuate(self, time: int) -> None:
                calls.append(time)
                raise RuntimeError("no")

        topology = Topology().add_source("in", "in").add_processor("p", Failing, "in")
        with TopologyTestDriver(topology, wall_clock=0, processing_errors=DEAD) as driver:
            driver.advance_wall_clock("1s")
            driver.advance_wall_clock("1s")
            assert calls == [1_000, 2_000]
            assert [record.timestamp for record in driver.output("dead").records()] == [1_000, 2_000]
            assert driver.dropped() == {("p", "dead letter"): 2}

    def test_a_failure_that_cannot_be_retried_goes_to_the_next_handler(self) -> None:
        class Failing(Processor[Any, Any, Any, Any]):
            def init(self, context: Any) -> None:
                context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, lambda time: 1 / 0)

        topology = Topology().add_source("in", "in").add_processor("p", Failing, "in")
        with TopologyTestDriver(topology, wall_clock=0, processing_errors=retry(then=DEAD)) as driver:
            driver.advance_wall_clock("1s")
            assert len(driver.output("dead")) == 1

    def test_a_cache_that_cannot_write_stops_the_lane_whatever_the_handler(self) -> None:
        """Flushing repeats until nothing is pending: with a handler that continues it would never end."""
        builder = StreamsBuilder()

        def wrong(key: Any, value: Any, so_far: Any) -> Any:
            return "no number"

        builder.stream("in").group_by_key().aggregate(int, wrong, store=Store("sums", value=int), name="sum")
        driver = TopologyTestDriver(builder.build(), processing_errors=CONTINUE)
        with pytest.raises(ProcessingError, match=r"(?s)sum failed on the record from .*store 'sums', key 'a'.*test_failures"):
            driver.input("in").pipe(1, key="a")

    def test_a_failing_init_is_not_a_processing_error(self) -> None:
        class Failing(Processor[Any, Any, Any, Any]):
            def init(self, context: Any) -> None:
                raise RuntimeError("no")

        topology = Topology().add_source("in", "in").add_processor("p", Failing, "in")
        with pytest.raises(ProcessingError, match="p failed to start"):
            TopologyTestDriver(topology, processing_errors=CONTINUE)


class TestDeserialization:
    def numbers(self) -> Topology:
        return Topology().add_source("numbers", "in", value=int).add_sink("out", "out", "numbers", value=int)

    @pytest.mark.parametrize("handler", [CONTINUE, DEAD, lambda failure: CONTINUE])
    def test_the_other_records_stay_in_order(self, handler: Any) -> None:
        with TopologyTestDriver(self.numbers(), deserialization_errors=handler) as driver:
            pipe = driver.input("in", value=bytes).pipe
            for value in (b"\0\0\0\0\0\0\0\1", b"short", b"", b"\0\0\0\0\0\0\0\2"):
                pipe(value, key="k")
            assert driver.output("out").values() == [1, 2]
            assert sum(driver.dropped().values()) == 2

    def test_a_record_that_cannot_be_read_becomes_a_dead_letter(self) -> None:
        with TopologyTestDriver(self.numbers(), deserialization_errors=DEAD) as driver:
            driver.input("in", value=bytes).pipe(b"short", key="k", timestamp=6, headers=(("h", b"1"),))
            [record] = driver.output("dead").records()
            assert (record.key, record.value, record.timestamp, record.headers[0]) == (b"k", b"short", 6, ("h", b"1"))
            headers = text(record.headers)
            assert headers["__streams.errors.exception"] == "penstock.errors.exceptions.SerializationError"
            assert headers["__penstock.errors.node"] == "numbers"
            assert "numbers cannot read the record from in-0 at offset 0" in (headers["__streams.errors.stacktrace"] or "")
            assert driver.produced_topic_names() == {"dead"}
            assert driver.dropped() == {("numbers", "dead letter"): 1}

    def test_queued_records_that_cannot_be_read_are_handled(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=bytes).flat_map_values(lambda value: [value, b"short", value]).to("round", value=bytes)
        builder.stream("round", value=int, name="round").to("out", value=int)
        with TopologyTestDriver(builder.build(), deserialization_errors=DEAD) as driver:
            driver.input("in").pipe(b"\0\0\0\0\0\0\0\1")
            assert driver.output("out").values() == [1, 1]
            assert driver.output("dead").values() == [b"short"]

    def test_a_global_table_drops_records_that_cannot_be_read(self) -> None:
        builder = StreamsBuilder()
        rates = builder.global_table("rates", value=int)
        builder.stream("in", value=int).join(rates, lambda n, rate: n * rate, on=lambda key, n: key).to("out", value=int)
        with TopologyTestDriver(builder.build(), deserialization_errors=DEAD) as driver:
            driver.input("rates").pipe(3, key="a")
            driver.input("rates", value=bytes).pipe(b"short", key="a")
            driver.input("in").pipe(2, key="a")
            assert driver.output("dead").values() == [b"short"]
            assert driver.output("out").values() == [6]

    def test_a_failing_timestamp_extractor_stops_the_lane_as_in_kafka_streams(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", timestamp=lambda record: record.value["at"])
        driver = TopologyTestDriver(builder.build(), deserialization_errors=CONTINUE, processing_errors=CONTINUE)
        with pytest.raises(ProcessingError, match="timestamp extractor"):
            driver.input("in", value=dict).pipe({})

    @pytest.mark.parametrize("timestamp", [-1, NANOSECONDS])
    def test_a_dead_letter_does_not_keep_an_invalid_timestamp(self, timestamp: int) -> None:
        with TopologyTestDriver(self.numbers(), wall_clock=5_000, deserialization_errors=DEAD) as driver:
            driver.pipe_raw("in", None, b"short", timestamp, ())
            assert driver.output("dead").read().timestamp == 5_000

    @pytest.mark.parametrize("timestamp", [-1, LAST_TIMESTAMP + 1, NANOSECONDS])
    def test_a_record_with_an_invalid_timestamp_cannot_be_read(self, timestamp: int) -> None:
        with TopologyTestDriver(self.numbers(), deserialization_errors=DEAD) as driver:
            for number, time in enumerate((7, timestamp, LAST_TIMESTAMP)):
                driver.pipe_raw("in", b"k", number.to_bytes(8, "big"), time, ())
            assert driver.output("out").values() == [0, 2]
            headers = text(driver.output("dead").read().headers)
            assert headers["__streams.errors.message"] == (
                f"Invalid timestamp {timestamp}: expected milliseconds since 1970, from 0 to {LAST_TIMESTAMP}."
            )
            assert "The record from in-0 at offset 1 has the invalid timestamp" in (headers["__streams.errors.stacktrace"] or "")

    def test_an_extractor_may_read_a_timestamp_in_another_unit(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=int, timestamp=lambda record: record.timestamp // 10**6).to("out", value=int)
        with TopologyTestDriver(builder.build()) as driver:
            driver.pipe_raw("in", None, bytes(8), NANOSECONDS, ())
            assert driver.output("out").read().timestamp == NANOSECONDS // 10**6


class TestProduction:
    def test_a_value_that_the_sink_cannot_serialize_is_a_dead_letter(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str, name="in").to("out", value=cast("Any", int), name="numbers")
        with TopologyTestDriver(builder.build(), processing_errors=log_and_fail(), production_errors=DEAD) as driver:
            driver.input("in").pipe("text", key="a")
            [record] = driver.output("dead").records()
            assert (record.key, record.value) == (b"a", b"text")
            assert text(record.headers)["__penstock.errors.node"] == "numbers"
            assert driver.output("out").is_empty

    @pytest.mark.parametrize(
        "sink",
        [
            lambda stream: stream.to(lambda key, value, context: 1 // value, value=int, name="sink"),
            lambda stream: stream.to("out", partitioner=lambda topic, key, value, count: 1 // value, value=int, name="sink"),
            lambda stream: stream.to("out", partitioner=lambda topic, key, value, count: 9, value=int, name="sink"),
        ],
    )
    def test_a_record_that_a_sink_cannot_route_is_dropped(self, sink: Callable[[Any], None]) -> None:
        builder = StreamsBuilder()
        sink(builder.stream("in", value=int))
        with TopologyTestDriver(builder.build(), production_errors=CONTINUE) as driver:
            driver.input("in").pipe(0, key="a")
            assert driver.dropped() == {("sink", "production error"): 1}
            assert driver.produced_topic_names() == set()

    def test_a_record_that_an_exchange_cannot_serialize_is_a_dead_letter(self) -> None:
        builder = StreamsBuilder()
        stream: KStream[Any, Any] = builder.stream("in", value=str)
        stream.select_key(lambda key, value: key).repartition(name="by", value=int).to("out", value=int)
        with TopologyTestDriver(builder.build(), production_errors=DEAD) as driver:
            driver.input("in").pipe("text", key="a")
            assert driver.output("dead").values() == [b"text"]

    def test_the_handler_of_processing_errors_is_not_called(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str).map_values(str).to("out", value=cast("Any", int), name="numbers")
        driver = TopologyTestDriver(builder.build(), processing_errors=CONTINUE)
        with pytest.raises(ProcessingError, match=r"^numbers failed"):
            driver.input("in").pipe("text")


class TestDecidingByFunction:
    def test_every_record_is_decided_on_its_own(self) -> None:
        seen: list[Failure] = []

        def choose(failure: Failure) -> Any:
            seen.append(failure)
            return DEAD if failure.key == b"b" else CONTINUE

        with TopologyTestDriver(inverting(), processing_errors=choose) as driver:
            driver.input("in").pipe_pairs([("a", 1), ("b", 1), ("c", 2)])
            assert [record.key for record in driver.output("dead", key=bytes, value=bytes).records()] == [b"b"]
            assert driver.output("out").pairs() == [("c!", 1.0)]
        assert [(failure.kind, failure.node, failure.metadata, failure.value) for failure in seen] == [
            (FailureKind.PROCESSING, "invert", RecordMetadata("in", 0, offset), (1).to_bytes(8, "big")) for offset in (0, 1)
        ]
        assert isinstance(seen[0].error, ZeroDivisionError)

    @pytest.mark.parametrize("answer", [lambda failure: failure.nothing, lambda failure: None])
    def test_a_handler_that_fails_or_returns_nothing_stops_the_lane(self, answer: Any) -> None:
        driver = TopologyTestDriver(inverting(), processing_errors=answer)
        with pytest.raises(ProcessingError, match=r"The processing error handler .*lambda"):
            driver.input("in").pipe(1, key="a")

    def test_a_dead_letter_that_fails_again_stops_the_lane(self) -> None:
        builder = StreamsBuilder()
        builder.stream("dead", value=int).map_values(inverse, name="invert").to("out", value=float)
        driver = TopologyTestDriver(builder.build(), processing_errors=DEAD)
        with pytest.raises(ProcessingError, match=r"(?s)invert failed .*cannot be a dead letter again"):
            driver.input("dead").pipe(0)


class TestDeadLetterRow:
    def test_the_headers_of_an_error_are_bounded(self) -> None:
        error = ValueError("é" * 100_000)
        failure = Failure(FailureKind.PRODUCTION, error, "sink", None, b"k", b"v", 5, ())
        row = dead_letter_row("dead", failure, error, "app", 3, now_ms=7)
        added = dict(row.headers)
        assert len(added["__streams.errors.message"] or b"") == LONGEST_MESSAGE
        assert len(added["__streams.errors.stacktrace"] or b"") == LONGEST_TRACE
        assert row == Row("dead", b"k", b"v", 5, row.headers, kind=RowKind.DEAD_LETTER)
        assert (added["__penstock.errors.application"], added["__penstock.errors.epoch"]) == (b"app", b"3")

    def test_a_message_with_lone_surrogates_is_escaped(self) -> None:
        error = ValueError("\ud800")
        failure = Failure(FailureKind.PROCESSING, error, "map", None, None, None, 0, ())
        assert dict(dead_letter_row("dead", failure, error, "app", 1, now_ms=7).headers)["__streams.errors.message"] == b"\\ud800"


class TestInAnEpoch:
    """The same with Arrow batches, as Spark delivers them."""

    def test_all_kinds_in_one_epoch(self) -> None:
        number = [value.to_bytes(8, "big") for value in range(4)]
        records = [
            Raw("in", 0, 10, b"a", number[2]),
            Raw("in", 1, 11, b"b", b"short", headers=(("h", b"1"),)),
            Raw("in", 2, 12, b"c", number[1], headers=(("h", b"2"),)),
            Raw("in", 3, 13, b"d", number[3]),
        ]
        lane = lane_with(inverting(), ErrorHandlers(deserialization=dead_letter("unread"), processing=DEAD))
        walk(lane, [batch(records)])
        rows = lane.outbox.drain()
        assert [row.key for row in rows if row.kind is not RowKind.DEAD_LETTER] == [b"a!", b"d!"]
        letters = [
            (row.topic, row.key, row.value, row.timestamp, row.headers[0]) for row in rows if row.kind is RowKind.DEAD_LETTER
        ]
        assert letters == [
            ("unread", b"b", b"short", 11, ("h", b"1")),
            ("dead", b"c", number[1], 12, ("h", b"2")),
        ]
        headers = [text(row.headers) for row in rows if row.kind is RowKind.DEAD_LETTER]
        assert [(it["__streams.errors.offset"], it["__penstock.errors.epoch"]) for it in headers] == [("1", "12"), ("2", "12")]
        assert lane.outbox.dropped == {("in", "dead letter"): 1, ("invert", "dead letter"): 1}

    def test_below_a_cache_a_dead_letter_has_no_origin_but_its_stack_trace_names_the_key(self) -> None:
        builder = StreamsBuilder()
        counted = builder.stream("in", value=bytes, name="in").group_by_key().count(store="n").to_stream()
        counted.map_values(lambda count: 1 / (count - 2), name="invert").to("out", value=float)
        lane = lane_with(builder.build(), ErrorHandlers(processing=DEAD))
        walk(lane, [batch([Raw("in", 0, 7, b"a", b""), Raw("in", 1, 8, b"a", b""), Raw("in", 2, 9, b"b", b"")])])
        letter, result = lane.outbox.drain()
        assert (letter.key, letter.value, letter.timestamp, letter.kind) == (None, None, 9, RowKind.DEAD_LETTER)
        headers = text(letter.headers)
        assert (headers["__streams.errors.topic"], headers["__streams.errors.offset"]) == (None, "-1")
        assert "from a timer or a cache (key 'a')" in (headers["__streams.errors.stacktrace"] or "")
        assert result.key == b"b"


def test_the_decision_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def choose(failure: Failure) -> Any:
        return {b"a": CONTINUE, b"b": DEAD}.get(failure.key or b"", log_and_fail())

    driver = TopologyTestDriver(inverting(), processing_errors=choose)
    with caplog.at_level(logging.INFO):
        driver.input("in").pipe_pairs([("a", 1), ("b", 1)])
        with pytest.raises(ProcessingError):
            driver.input("in").pipe(1, key="c")
    assert [(record.levelname, record.getMessage().split(": ")[0]) for record in caplog.records] == [
        ("WARNING", "invert failed on the record from in-0 at offset 0, dropping it"),
        ("WARNING", "invert failed on the record from in-0 at offset 1, now a dead letter"),
        ("ERROR", "invert failed on the record from in-0 at offset 2, stopping the lane"),
    ]


def test_without_a_retry_a_node_runs_the_operator_it_was_given() -> None:
    """Handlers cost nothing if nothing fails."""
    topology = inverting()
    lane = lane_with(topology, ErrorHandlers(processing=DEAD, production=lambda failure: CONTINUE))
    for node in topology.nodes.values():
        if isinstance(node, ProcessorNode):
            assert lane.failures.retrying(node) is node.operator
