"""Side outputs: named, typed streams of what a processor sends aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from penstock import FixedKeyProcessor, Processor, Record, StreamsBuilder, Topology, log_and_continue, retry
from penstock.errors import ProcessingError, TopologyError
from penstock.testing import TopologyTestDriver


@dataclass
class Rejection:
    why: str


class Check(Processor[str, int, str, int]):
    """Forwards what is positive, sends aside what is not."""

    def process(self, record: Record[str, int]) -> None:
        if record.value > 0:
            self.context.forward(record)
        else:
            self.context.side_output("rejected", record.with_value(Rejection(f"{record.value} is too small")))


class CheckValues(FixedKeyProcessor[str, int, int]):
    def process(self, record: Record[str, int]) -> None:
        Check.process(self, record)  # type: ignore[arg-type]


def checked(verb: str = "process") -> tuple[StreamsBuilder, Any]:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=int)
    supplier: Any = Check if verb == "process" else CheckValues
    return builder, getattr(stream, verb)(supplier, value=int, name="check")


@pytest.mark.parametrize("verb", ["process", "process_values"])
def test_what_is_sent_aside_goes_only_to_the_side_stream_with_its_own_serde(verb: str) -> None:
    builder, stream = checked(verb)
    stream.to("accepted", value=int)
    stream.side_output("rejected", value=Rejection).to("rejected", value=Rejection)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe(5, key="a", timestamp=7, headers=(("h", b"1"),))
        driver.input("in").pipe(-1, key="b", timestamp=8, headers=(("h", b"2"),))
        assert driver.output("accepted").records() == [Record("a", 5, 7, (("h", b"1"),))]
        assert driver.output("rejected").records() == [Record("b", Rejection("-1 is too small"), 8, (("h", b"2"),))]


def test_a_side_stream_can_be_regrouped_counted_and_joined() -> None:
    builder, stream = checked()
    rejected = stream.side_output("rejected", value=Rejection)
    rejected.group_by(lambda _, rejection: rejection.why, key=str).count(store="by-reason")
    accepted = stream.group_by_key().count(store="accepted")
    rejected.join(accepted, lambda rejection, count: f"{rejection.why}, {count} fine", other_value=int, value=Rejection).to(
        "joined", value=str
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe_pairs([("a", 3), ("a", 4), ("a", -2), ("b", -2)])
        assert driver.store("by-reason")["-2 is too small"] == 2
        assert driver.output("joined").pairs() == [("a", "-2 is too small, 2 fine")]


def test_a_side_stream_of_a_processor_with_values_only_needs_no_exchange() -> None:
    for verb, exchanges in (("process", 1), ("process_values", 0)):
        builder, stream = checked(verb)
        stream.side_output("rejected", value=Rejection).group_by_key().count()
        assert len(builder.build().exchanges) == exchanges


def test_the_key_of_a_side_stream_is_that_of_the_main_one_unless_it_is_given() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=int, value=int).process_values(cast("Any", CheckValues), value=int)
    stream.side_output("rejected", value=Rejection).to("rejected")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe(-1, key=7)
        assert driver.output("rejected").pairs() == [(7, Rejection("-1 is too small"))]


class TestMistakes:
    def test_an_undeclared_output_is_an_error_that_no_handler_hides(self) -> None:
        builder, stream = checked()
        stream.side_output("late")
        stream.side_output("odd")
        with TopologyTestDriver(builder.build(), processing_errors=log_and_continue()) as driver:
            driver.input("in").pipe(1)
            message = r"check sends .* side output 'rejected', .*test_side_outputs\.py.*Declared side outputs: late, odd"
            with pytest.raises(TopologyError, match=message):
                driver.input("in").pipe(-1)

    def test_without_any_declared_the_error_says_none(self) -> None:
        builder, _ = checked()
        with (
            TopologyTestDriver(builder.build()) as driver,
            pytest.raises(TopologyError, match=r"Declared side outputs: none"),
        ):
            driver.input("in").pipe(-1)

    def test_a_stream_that_no_processor_gives_has_none(self) -> None:
        stream = StreamsBuilder().stream("in").filter(lambda *_: True, name="kept")
        with pytest.raises(TopologyError, match=r"kept has no side output 'rejected' .*test_side_outputs\.py"):
            stream.side_output("rejected")

    def test_the_same_one_cannot_be_declared_twice(self) -> None:
        _, stream = checked()
        stream.side_output("rejected")
        with pytest.raises(TopologyError, match=r"'rejected' of check is declared twice .*test_side_outputs\.py"):
            stream.side_output("rejected")
        topology = (
            Topology().add_source("in", "in").add_processor("check", Check, "in").add_side_output("one", "check", "rejected")
        )
        with pytest.raises(TopologyError, match=r"'rejected' of check is declared twice .*test_side_outputs\.py"):
            topology.add_side_output("two", "check", "rejected")

    def test_a_fixed_key_stays_fixed_on_the_side(self) -> None:
        class Moves(FixedKeyProcessor[str, int, int]):
            def process(self, record: Record[str, int]) -> None:
                self.context.side_output("moved", record.with_key("other"))

        builder = StreamsBuilder()
        builder.stream("in", value=int).process_values(Moves).side_output("moved")
        with (
            TopologyTestDriver(builder.build()) as driver,
            pytest.raises(ProcessingError, match="a FixedKeyProcessor must not change the key"),
        ):
            driver.input("in").pipe(1, key="a")

    def test_a_negative_timestamp_is_refused(self) -> None:
        class Early(Processor[str, int, str, int]):
            def process(self, record: Record[str, int]) -> None:
                self.context.side_output("early", record.with_timestamp(-1))

        builder = StreamsBuilder()
        builder.stream("in", value=int).process(Early).side_output("early")
        with (
            TopologyTestDriver(builder.build()) as driver,
            pytest.raises(ProcessingError, match="invalid record timestamp -1: it must be 0 or later"),
        ):
            driver.input("in").pipe(1)

    def test_only_a_processor_can_send_aside(self) -> None:
        with pytest.raises(TopologyError, match="no processor 'in' to add a side output to"):
            Topology().add_source("in", "in").add_side_output("aside", "in", "aside")


def test_a_processor_that_has_sent_something_aside_is_not_called_again() -> None:
    class Fails(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            self.context.side_output("seen", record)
            raise ConnectionError

    builder = StreamsBuilder()
    builder.stream("in", value=int).process(Fails).side_output("seen", value=int).to("seen", value=int)
    with TopologyTestDriver(builder.build(), processing_errors=retry(3, then=log_and_continue())) as driver:
        driver.input("in").pipe(1)
        assert driver.output("seen").values() == [1]


def test_the_processor_api_has_side_outputs_too_and_the_drawings_show_them() -> None:
    topology = (
        Topology()
        .add_source("in", "in", value=int)
        .add_processor("check", Check, "in")
        .add_side_output("check-rejected", "check", "rejected")
        .add_sink("out", "accepted", "check", value=int)
        .add_sink("aside", "rejected", "check-rejected", value=Rejection)
    )
    assert "Processor: check-rejected (stores: [])\n      --> aside\n      <-- check" in topology.describe()
    assert 'n1 -->|"rejected"| n2' in topology.mermaid()
    with TopologyTestDriver(topology) as driver:
        driver.input("in").pipe_values([1, -1])
        assert driver.output("accepted").values() == [1]
        assert driver.output("rejected").values() == [Rejection("-1 is too small")]
