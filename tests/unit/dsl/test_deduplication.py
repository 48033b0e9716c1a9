"""`deduplicate`: what is let through, by key, by identity and by time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import StreamsBuilder, Topology, log_and_continue
from penstock.errors import TopologyError
from penstock.testing import TopologyTestDriver


def unique(**options: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=dict).deduplicate(**options).to("out", value=dict)
    return builder.build()


def passed(topology: Topology, *records: tuple[str | None, Any, int]) -> list[Any]:
    with TopologyTestDriver(topology) as driver:
        source = driver.input("in")
        for key, value, time in records:
            source.pipe(value, key=key, timestamp=time)
        return driver.output("out").values()


def test_a_key_is_let_through_once_within_the_time() -> None:
    records = [("a", {"n": 1}, 0), ("b", {"n": 2}, 10), ("a", {"n": 3}, 900), ("a", {"n": 4}, 2_000), ("a", {"n": 5}, 2_500)]
    assert [value["n"] for value in passed(unique(within="1s"), *records)] == [1, 2, 4]


def test_an_identity_is_compared_within_its_key() -> None:
    records = [("a", {"id": 1}, 0), ("a", {"id": 2}, 1), ("b", {"id": 1}, 2), ("a", {"id": 1}, 3)]
    topology = unique(by=lambda _, value: value["id"], within="1s")
    assert passed(topology, *records) == [{"id": 1}, {"id": 2}, {"id": 1}]


def test_records_that_are_out_of_order_are_compared_too() -> None:
    records = [("a", {"n": 1}, 1_000), ("a", {"n": 2}, 500), ("b", {"n": 3}, 5_000), ("b", {"n": 4}, 3_000)]
    assert [value["n"] for value in passed(unique(within="1s"), *records)] == [1, 3, 4]


def test_records_without_a_key_are_compared_by_their_identity() -> None:
    records: list[tuple[str | None, Any, int]] = [(None, {"id": 1}, 0), (None, {"id": 1}, 1), (None, {"id": 2}, 2)]
    topology = unique(by=lambda _, value: value["id"], within="1s")
    assert passed(topology, *records) == [{"id": 1}, {"id": 2}]


def test_records_with_neither_key_nor_identity_are_all_let_through() -> None:
    records: list[tuple[str | None, Any, int]] = [(None, {"n": 1}, 0), (None, {"n": 2}, 1), ("", {"n": 3}, 2), ("", {"n": 4}, 3)]
    assert [value["n"] for value in passed(unique(within="1s"), *records)] == [1, 2, 3]


def test_an_empty_key_is_not_a_missing_one() -> None:
    topology = unique(by=lambda _, value: value["id"], within="1s")
    records: list[tuple[str | None, Any, int]] = [(None, {"id": 1}, 0), ("", {"id": 1}, 1), ("", {"id": 1}, 2)]
    assert len(passed(topology, *records)) == 2


def test_parts_of_key_and_identity_are_not_confused() -> None:
    topology = unique(by=lambda _, value: value["id"], within="1s")
    assert len(passed(topology, ("a1", {"id": 2}, 0), ("a", {"id": 12}, 1))) == 2


def test_a_function_that_fails_is_handled() -> None:
    topology = unique(by=lambda _, value: value["id"], within="1s")
    with TopologyTestDriver(topology, processing_errors=log_and_continue()) as driver:
        driver.input("in").pipe({}, key="a")
        driver.input("in").pipe({"id": 1}, key="a")
        assert driver.output("out").values() == [{"id": 1}]


def test_its_function_is_checked_when_it_is_declared() -> None:
    with pytest.raises(TopologyError, match="deduplicate"):
        unique(by=lambda value: value, within="1s")
