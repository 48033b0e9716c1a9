"""`InputTopic` and `OutputTopic`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from penstock import Record, Topology
from penstock.testing import TopologyTestDriver


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    topology = Topology().add_source("in", "in", value=str).add_sink("out", "out", "in", value=str)
    with TopologyTestDriver(topology, wall_clock=1000) as driver:
        yield driver


def times(driver: TopologyTestDriver) -> list[int]:
    return [record.timestamp for record in driver.output("out").records()]


class TestInput:
    def test_records_get_the_wall_clock_time_at_which_the_topic_was_opened(self, driver: TopologyTestDriver) -> None:
        topic = driver.input("in")
        topic.pipe("x")
        driver.advance_wall_clock(500)
        topic.pipe("x")
        driver.input("in").pipe("x")
        assert times(driver) == [1000, 1000, 1500]

    def test_each_record_moves_the_time_by_the_advance(self, driver: TopologyTestDriver) -> None:
        topic = driver.input("in", start=50, advance=timedelta(milliseconds=10))
        topic.pipe("x")
        topic.pipe("x")
        topic.pipe("x", timestamp=7)
        topic.pipe("x")
        topic.advance_time("1s")
        topic.pipe("x")
        assert times(driver) == [50, 60, 7, 70, 1080]

    def test_a_time_may_be_a_date(self, driver: TopologyTestDriver) -> None:
        driver.input("in").pipe("x", timestamp=datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc))
        assert times(driver) == [1000]

    def test_a_time_is_not_negative(self, driver: TopologyTestDriver) -> None:
        with pytest.raises(ValueError, match="Invalid record timestamp -1: it must be 0 or later"):
            driver.input("in", start=0).pipe("x", timestamp=-1)
        assert driver.output("out").is_empty

    def test_values_and_pairs_may_have_their_own_start_time(self, driver: TopologyTestDriver) -> None:
        topic = driver.input("in", start=0, advance=1)
        topic.pipe_values(["a", "b"])
        topic.pipe_values(["c", "d"], start=100, advance=10)
        topic.pipe_pairs([("k", "e"), (None, None)], start=200)
        got = driver.output("out").records()
        assert [(record.key, record.value, record.timestamp) for record in got] == [
            (None, "a", 0),
            (None, "b", 1),
            (None, "c", 100),
            (None, "d", 110),
            ("k", "e", 200),
            (None, None, 200),
        ]

    def test_records_are_piped_as_they_are(self, driver: TopologyTestDriver) -> None:
        records: list[Record[Any, Any]] = [Record("a", "x", 5, (("h", b"1"),)), Record(None, None, 3)]
        driver.input("in").pipe_records(records)
        assert driver.output("out").records() == records

    def test_other_serdes_may_be_given(self, driver: TopologyTestDriver) -> None:
        driver.input("in", key=bytes, value=bytes).pipe(b"raw", key=b"k")
        assert driver.output("out").read_pair() == ("k", "raw")


class TestOutput:
    def test_reading_removes_records(self, driver: TopologyTestDriver) -> None:
        driver.input("in").pipe_pairs([("a", "1"), ("b", "2"), ("c", "3")], start=7)
        topic = driver.output("out")
        assert (len(topic), topic.is_empty) == (3, False)
        assert topic.read() == Record("a", "1", 7)
        assert topic.read_value() == "2"
        assert topic.read_pair() == ("c", "3")
        assert (len(topic), topic.is_empty) == (0, True)

    def test_an_empty_topic_has_nothing_to_read(self, driver: TopologyTestDriver) -> None:
        topic = driver.output("out")
        assert (topic.records(), topic.values(), topic.pairs(), topic.table()) == ([], [], [], {})
        with pytest.raises(LookupError, match="no more records"):
            topic.read()

    def test_a_table_is_the_last_value_of_each_key(self, driver: TopologyTestDriver) -> None:
        driver.input("in").pipe_pairs([("a", "1"), ("b", "2"), ("a", "3"), ("b", None), ("c", None)])
        assert driver.output("out").table() == {"a": "3"}

    def test_records_can_be_read_raw(self, driver: TopologyTestDriver) -> None:
        driver.input("in").pipe("x", key="k")
        assert driver.output("out", key=bytes, value=bytes).pairs() == [(b"k", b"x")]

    def test_an_open_output_sees_later_records(self, driver: TopologyTestDriver) -> None:
        topic = driver.output("out")
        driver.input("in").pipe("x")
        assert topic.values() == ["x"]
