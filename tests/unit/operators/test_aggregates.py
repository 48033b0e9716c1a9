"""Aggregates of a grouped stream: values, times and old values as downstream sees them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import KTable, ProcessingError, StreamsBuilder
from penstock.operators.stateless import PassThrough
from penstock.records import Change, Headers
from penstock.testing import TopologyTestDriver
from penstock.topology import Line, ProcessorNode

HEADERS = (("trace", b"1"),)


class Changes:
    """Listens to what a table forwards."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Change, int, Headers]] = []

    def below(self, builder: StreamsBuilder, table: KTable[Any, Any], *, caching: bool, old: bool) -> TopologyTestDriver:
        if old:
            table._table.send_old_values(force=True)
        topology = builder.build()
        seen = self.seen

        class Listening(PassThrough):
            def bind(self, host: Any, forward: Any) -> Any:
                return lambda *record: seen.append(record)

        topology.add_node(ProcessorNode("listen", (table._place.name,), Listening(), (), Line("app.py", 1, "main")))
        return TopologyTestDriver(topology, caching=caching)

    def changes(self) -> list[tuple[Any, Any, Any]]:
        return [(key, change.new, change.old) for key, change, _, _ in self.seen]


def total(key: str, value: int, so_far: int) -> int:
    return so_far + value


class TestAggregate:
    @pytest.mark.parametrize(
        ("caching", "first_old"),
        [(False, 100), (True, None)],
        ids=["uncached: the initial value is old", "cached: nothing is old"],
    )
    def test_old_values(self, caching: bool, first_old: int | None) -> None:
        builder = StreamsBuilder()
        table = builder.stream("in", value=int).group_by_key().aggregate(lambda: 100, total, value=int)
        listening = Changes()
        with listening.below(builder, table, caching=caching, old=True) as driver:
            driver.input("in").pipe_pairs([("a", 1), ("a", 2)])
        assert listening.changes() == [("a", 101, first_old), ("a", 103, 101)]

    @pytest.mark.parametrize("caching", [False, True])
    def test_old_values_are_not_sent_unasked(self, caching: bool) -> None:
        builder = StreamsBuilder()
        table = builder.stream("in", value=int).group_by_key().aggregate(lambda: 100, total, value=int)
        listening = Changes()
        with listening.below(builder, table, caching=caching, old=False) as driver:
            driver.input("in").pipe_pairs([("a", 1), ("a", 2)])
        assert listening.changes() == [("a", 101, None), ("a", 103, None)]

    def test_time_is_the_highest_and_headers_are_the_last_records(self) -> None:
        builder = StreamsBuilder()
        table = builder.stream("in", value=int).group_by_key().aggregate(int, total, value=int)
        listening = Changes()
        with listening.below(builder, table, caching=False, old=False) as driver:
            driver.input("in").pipe(1, key="a", timestamp=9)
            driver.input("in").pipe(1, key="a", timestamp=4, headers=HEADERS)
        assert [(timestamp, headers) for _, _, timestamp, headers in listening.seen] == [(9, ()), (9, HEADERS)]

    def test_an_initializer_that_fails_names_the_node(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").group_by_key().aggregate(lambda: 1 // 0, total, value=int, name="sum")
        with (
            TopologyTestDriver(builder.build()) as driver,
            pytest.raises(ProcessingError, match=r"sum failed.*ZeroDivisionError"),
        ):
            driver.input("in").pipe(1, key="a")

    def test_a_failure_below_is_left_alone(self) -> None:
        builder = StreamsBuilder()
        table = builder.stream("in", value=int).group_by_key().aggregate(int, total, value=int)
        table.to_stream().foreach(lambda key, value: 1 / value, name="below")
        with TopologyTestDriver(builder.build(), caching=False) as driver, pytest.raises(ProcessingError, match=r"^below failed"):
            driver.input("in").pipe(0, key="a")


class TestReduce:
    def reduced(self, builder: StreamsBuilder) -> KTable[Any, Any]:
        return builder.stream("in", value=int).group_by_key().reduce(lambda so_far, value: so_far - value, name="r")

    @pytest.mark.parametrize("caching", [False, True])
    def test_the_first_value_has_no_old_one(self, caching: bool) -> None:
        builder = StreamsBuilder()
        table = self.reduced(builder)
        listening = Changes()
        with listening.below(builder, table, caching=caching, old=True) as driver:
            driver.input("in").pipe_pairs([("a", 10), ("a", 2), ("b", 1)])
        assert listening.changes() == [("a", 10, None), ("a", 8, 10), ("b", 1, None)]

    def test_skips_null_keys_and_values(self) -> None:
        builder = StreamsBuilder()
        self.reduced(builder).to_stream().to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe_pairs([(None, 10), ("a", None)])
            assert driver.output("out").is_empty
            assert driver.dropped() == {("r", "null key or value"): 2}

    def test_a_failure_names_the_node_and_one_below_is_left_alone(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").group_by_key().reduce(lambda so_far, value: so_far / value, name="r").to_stream().foreach(
            lambda key, value: 1 / value, name="below"
        )
        with TopologyTestDriver(builder.build(), caching=False) as driver:
            topic = driver.input("in")
            with pytest.raises(ProcessingError, match=r"^below failed"):
                topic.pipe(0, key="b")
            topic.pipe(1, key="a")
            with pytest.raises(ProcessingError, match=r"^r failed.*ZeroDivisionError"):
                topic.pipe(0, key="a")

    def test_can_be_joined(self) -> None:
        builder = StreamsBuilder()
        table = self.reduced(builder)
        builder.stream("asks").join(table, lambda ask, value: value).to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe_pairs([("a", 10), ("a", 2)])
            driver.input("asks").pipe("?", key="a")
            assert driver.output("out").values() == [8]
