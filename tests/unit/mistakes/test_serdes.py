"""Mistakes with the types of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from penstock import Int32, StreamsBuilder
from penstock.errors import ProcessingError
from penstock.testing import TopologyTestDriver
from tests.unit.mistakes.teaching import teaches, wrong


@dataclass
class Size:
    length: int


def test_a_java_integer_read_as_int() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=int).to("out", value=int)
    with (
        TopologyTestDriver(builder.build()) as driver,
        teaches(ProcessingError, "Int64 expects exactly 8 bytes, got 4", "Serdes of that size: Int32(), Float32()"),
    ):
        driver.input("in", value=Int32()).pipe(7)


def test_text_read_as_json() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        teaches(ProcessingError, "cannot read the record from in-0 at offset 0", "its serdes are key=String(), value=Json()"),
    ):
        driver.input("in", value=str).pipe("no JSON")


def test_a_value_that_its_sink_cannot_write() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).map_values(len).to("out", value=wrong(str))
    with (
        TopologyTestDriver(builder.build()) as driver,
        teaches(ProcessingError, "String expects str, got int", "values with String(); key= and value= set others"),
    ):
        driver.input("in").pipe("abc")


def test_a_key_of_another_type_after_group_by() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by(lambda key, value: len(value)).count(store="lengths")
    with (
        TopologyTestDriver(builder.build()) as driver,
        teaches(ProcessingError, "String expects str, got int", "writes keys with String()"),
    ):
        driver.input("in").pipe("abc")


def test_an_object_whose_type_nobody_has_said() -> None:
    builder = StreamsBuilder()
    sizes = builder.stream("in", value=str).map_values(lambda text: Size(len(text)))
    sizes.group_by_key().reduce(lambda one, two: Size(one.length + two.length)).to_stream().to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        teaches(ProcessingError, "it would be read back as dict", "-> Size at the function of map_values ("),
    ):
        driver.input("in").pipe("abc", key="k")


def test_a_tuple_as_json() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).map_values(lambda text: (text, len(text))).to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        teaches(ProcessingError, "it would be read back as list", "value=tuple there. Or make it a list."),
    ):
        driver.input("in").pipe("abc", key="k")


def test_a_serde_class_in_place_of_an_object() -> None:
    with teaches(TypeError, "Int32 is a Serde class", "Write Int32(...)"):
        StreamsBuilder().stream("in", value=Int32)


def test_a_type_without_a_serde() -> None:
    with teaches(TypeError, "complex has no mapping to documents", "Serde"):
        StreamsBuilder().stream("in", value=complex)
