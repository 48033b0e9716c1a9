"""Stateless operators: what passes unchanged, and which node a failure belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import KStream, PenstockError, StreamsBuilder, otherwise
from penstock.errors import ProcessingError, StateError, TopologyError
from penstock.testing import TopologyTestDriver

HEADERS = (("trace", b"1"), ("trace", None))


def fails(key: Any, value: Any) -> Any:
    raise RuntimeError("no")


def value_fails(value: Any) -> Any:
    raise RuntimeError("no")


def half_fails(key: Any, value: Any) -> Any:
    yield (key, value)
    raise RuntimeError("no")


Verb = Callable[[KStream], Any]

FAILING: dict[str, Verb] = {
    "filter": lambda s: s.filter(fails, name="here"),
    "filter_not": lambda s: s.filter_not(fails, name="here"),
    "select_key": lambda s: s.select_key(fails, name="here"),
    "map": lambda s: s.map(fails, name="here"),
    "map without a pair": lambda s: s.map(lambda key, value: value, name="here"),
    "map_values": lambda s: s.map_values(value_fails, name="here"),
    "map_values with key": lambda s: s.map_values(fails, with_key=True, name="here"),
    "flat_map": lambda s: s.flat_map(fails, name="here"),
    "flat_map while iterating": lambda s: s.flat_map(half_fails, name="here"),
    "flat_map_values": lambda s: s.flat_map_values(value_fails, name="here"),
    "flat_map_values with key": lambda s: s.flat_map_values(fails, with_key=True, name="here"),
    "peek": lambda s: s.peek(fails, name="here"),
    "foreach": lambda s: s.foreach(fails, name="here"),
    "print": lambda s: s.print(mapper=fails, name="here"),
    "split": lambda s: s.split(fails, name="here"),
}


@pytest.mark.parametrize("verb", FAILING)
def test_a_function_that_fails_names_its_node_its_line_and_the_record(verb: str) -> None:
    builder = StreamsBuilder()
    FAILING[verb](builder.stream("in"))
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError) as caught:
        driver.input("in").pipe(1, key="k")
    assert str(caught.value).startswith("here failed on the record from in-0 at offset 0 (key 'k'): ")
    assert f"{__file__}:" in str(caught.value)


PASSING: dict[str, Verb] = {
    "filter": lambda s: s.filter(lambda key, value: True, name="above"),
    "filter_not": lambda s: s.filter_not(lambda key, value: False, name="above"),
    "select_key": lambda s: s.select_key(lambda key, value: key, name="above"),
    "map": lambda s: s.map(lambda key, value: (key, value), name="above"),
    "map_values": lambda s: s.map_values(lambda value: value, name="above"),
    "map_values with key": lambda s: s.map_values(lambda key, value: value, with_key=True, name="above"),
    "flat_map": lambda s: s.flat_map(lambda key, value: [(key, value)], name="above"),
    "flat_map_values": lambda s: s.flat_map_values(lambda value: [value], name="above"),
    "flat_map_values with key": lambda s: s.flat_map_values(lambda key, value: [value], with_key=True, name="above"),
    "peek": lambda s: s.peek(lambda key, value: None, name="above"),
    "split": lambda s: s.split(lambda key, value: True, name="above")[0],
    "otherwise": lambda s: s.split(otherwise, name="above")[0],
    "merge": lambda s: s.merge(s.filter(lambda key, value: False), name="above"),
}


@pytest.mark.parametrize("verb", PASSING)
def test_a_failure_below_is_not_reported_again_above(verb: str) -> None:
    builder = StreamsBuilder()
    PASSING[verb](builder.stream("in")).foreach(fails, name="below")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError) as caught:
        driver.input("in").pipe(1, key="k")
    assert str(caught.value).startswith("below failed")
    assert str(caught.value).count("failed") == 1


@pytest.mark.parametrize("verb", PASSING)
def test_time_headers_and_nulls_pass_unchanged(verb: str) -> None:
    builder = StreamsBuilder()
    PASSING[verb](builder.stream("in")).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe(None, key=None, timestamp=7, headers=HEADERS)
        record = driver.output("out").read()
        assert (record.key, record.value, record.timestamp, record.headers) == (None, None, 7, HEADERS)


@pytest.mark.parametrize(("error", "named"), [(StateError, True), (ProcessingError, False), (TopologyError, False)])
def test_attributed_errors_pass_and_others_name_the_node(error: type[PenstockError], named: bool) -> None:
    def refuse(key: Any, value: Any) -> str:
        raise error("as it is")

    builder = StreamsBuilder()
    builder.stream("in").print(mapper=refuse, name="printer")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError if named else error) as caught:
        driver.input("in").pipe(1)
    assert str(caught.value).startswith("printer failed on the record" if named else "as it is")
    assert isinstance(caught.value.__cause__, error) is named


def test_a_flat_map_to_nothing_drops_the_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in").flat_map(lambda key, value: ()).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe(1)
        assert driver.output("out").is_empty
