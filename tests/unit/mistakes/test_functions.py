"""Mistakes with functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from penstock import StreamsBuilder, col, on_record
from penstock.errors import ProcessingError, TopologyError
from penstock.testing import TopologyTestDriver
from tests.unit.mistakes.teaching import teaches, wrong


def run(builder: StreamsBuilder, value: Any = "a") -> None:
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe(value, key="k")


def test_a_lambda_with_too_few_arguments() -> None:
    with teaches(TopologyError, "filter calls its function with (key, value)", "write lambda key, value: …"):
        StreamsBuilder().stream("in").filter(wrong(lambda value: True))


def test_a_class_that_needs_arguments_in_place_of_its_function() -> None:
    class Counting:
        def __init__(self, name: str) -> None:
            self.name = name

    grouped = StreamsBuilder().stream("in", value=str).group_by_key()
    with teaches(TopologyError, "initializer calls its function with ()", "Counting(…)"):
        grouped.aggregate(wrong(Counting), lambda key, value, seen: seen)


def test_a_value_in_place_of_a_function() -> None:
    with teaches(TopologyError, "map_values needs a function of (value), not 5", "write lambda value: …"):
        StreamsBuilder().stream("in").map_values(wrong(5))


def test_an_async_function_in_a_plain_verb() -> None:
    async def ask(value: str) -> str:
        return value

    with teaches(TopologyError, "ask is async def", "use map_values_async"):
        StreamsBuilder().stream("in", value=str).map_values(ask)


def test_a_mapper_that_returns_no_pair() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).map(wrong(lambda key, value: None))
    with teaches(ProcessingError, "in-0 at offset 0", "the function must return a pair (key, value)"):
        run(builder)


@pytest.mark.parametrize("mapper", [lambda key, value: value, on_record(lambda record: record.value)], ids=["pair", "record"])
def test_a_mapper_that_returns_a_text_of_three_letters_is_told_so_too(mapper: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).map(mapper)
    with teaches(ProcessingError, "too many values to unpack", "must return a pair (key, value)"):
        run(builder, "abc")


def test_a_flat_mapper_that_returns_nothing() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).flat_map_values(wrong(lambda value: None))
    with teaches(ProcessingError, "'NoneType' object is not iterable", "must return an iterable of values"):
        run(builder)
    builder = StreamsBuilder()
    builder.stream("in", value=str).flat_map(wrong(lambda key, value: [value]))
    with teaches(ProcessingError, "unpack", "must return an iterable of pairs (key, value)"):
        run(builder, "abc")


def test_an_error_within_a_function_is_not_mistaken_for_its_result() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=int).map(wrong(lambda key, value: (key, list(value))))
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError) as found:
        driver.input("in").pipe(5)
    assert "'int' object is not iterable" in str(found.value)
    assert "must return" not in str(found.value)


def test_an_initial_value_in_place_of_its_function() -> None:
    grouped = StreamsBuilder().stream("in", value=str).group_by_key()
    with teaches(TopologyError, "aggregate's initializer needs a function of (), not []", "write list"):
        grouped.aggregate(wrong([]), lambda key, value, seen: [*seen, value])


def test_an_initial_value_that_all_keys_share() -> None:
    seen: list[str] = []

    def add(key: str, value: str, aggregate: list[str]) -> list[str]:
        aggregate.append(value)
        return aggregate

    grouped = StreamsBuilder().stream("in", value=str).group_by_key()
    with teaches(TopologyError, "returns the same list each time, so that all keys would share it", "such as list()"):
        grouped.aggregate(lambda: seen, add, value=list)


def test_an_initial_value_that_cannot_change_may_be_shared() -> None:
    nothing = ()
    StreamsBuilder().stream("in").group_by_key().aggregate(lambda: nothing, lambda key, value, seen: (*seen, value), value=list)


def test_a_function_that_fails_on_a_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=dict).map_values(lambda order: order["total"], name="total")
    with teaches(ProcessingError, "total failed on the record from in-0 at offset 0 (key 'k')", "KeyError: 'total'"):
        run(builder, {"sum": 5})


def test_a_condition_with_and_in_place_of_its_operator() -> None:
    with teaches(TopologyError, "has no truth value before there is a record", "write & for and"):
        StreamsBuilder().stream("in").filter(col("a") > 1 and col("b") < 2)


def test_a_field_that_the_value_does_not_have() -> None:
    @dataclass
    class Order:
        total: int

    with teaches(TopologyError, "has no field 'sum'", "it has total"):
        StreamsBuilder().stream("in", value=Order).filter(col("sum") > 1)
