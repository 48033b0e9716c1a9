"""Aggregates of a grouped stream: values, times and old values as downstream sees them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import KTable, Store, StreamsBuilder, sliding, tumbling
from penstock.errors import ProcessingError, TopologyError
from penstock.operators.stateless import PassThrough
from penstock.records import Change, Headers
from penstock.testing import TopologyTestDriver
from penstock.topology import Line
from tests.unit.lanes.feeding import lane_of

HEADERS = (("trace", b"1"),)


class Changes:
    """Records what a table forwards."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Change, int, Headers]] = []

    def below(self, builder: StreamsBuilder, table: KTable[Any, Any], *, caching: bool, old: bool) -> TopologyTestDriver:
        if old:
            table._at.table.send_old_values(force=True)
        seen = self.seen

        class Listening(PassThrough):
            def bind(self, host: Any, forward: Any) -> Any:
                return lambda *record: seen.append(record)

        table._at.place.below("listen", Listening(), Line("app.py", 1, "main"))
        return TopologyTestDriver(builder.build(), caching=caching)

    def changes(self) -> list[tuple[Any, Any, Any]]:
        return [(key, change.new, change.old) for key, change, _, _ in self.seen]


def total(key: str, value: int, so_far: int) -> int:
    return so_far + value


class TestAggregate:
    @pytest.mark.parametrize(
        ("caching", "first_old"),
        [(False, 100), (True, None)],
        ids=["uncached: old value is the initial one", "cached: no old value"],
    )
    def test_old_values(self, caching: bool, first_old: int | None) -> None:
        builder = StreamsBuilder()
        table = builder.stream("in", value=int).group_by_key().aggregate(lambda: 100, total, value=int)
        listening = Changes()
        with listening.below(builder, table, caching=caching, old=True) as driver:
            driver.input("in").pipe_pairs([("a", 1), ("a", 2)])
        assert listening.changes() == [("a", 101, first_old), ("a", 103, 101)]

    @pytest.mark.parametrize("caching", [False, True])
    def test_old_values_are_sent_only_if_requested(self, caching: bool) -> None:
        builder = StreamsBuilder()
        table = builder.stream("in", value=int).group_by_key().aggregate(lambda: 100, total, value=int)
        listening = Changes()
        with listening.below(builder, table, caching=caching, old=False) as driver:
            driver.input("in").pipe_pairs([("a", 1), ("a", 2)])
        assert listening.changes() == [("a", 101, None), ("a", 103, None)]

    def test_a_result_has_the_highest_time_and_the_last_records_headers(self) -> None:
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

    def test_a_failure_below_is_not_reported_again(self) -> None:
        builder = StreamsBuilder()
        table = builder.stream("in", value=int).group_by_key().aggregate(int, total, value=int)
        table.to_stream().foreach(lambda key, value: 1 / value, name="below")
        with TopologyTestDriver(builder.build(), caching=False) as driver, pytest.raises(ProcessingError, match=r"^below failed"):
            driver.input("in").pipe(0, key="a")

    @pytest.mark.parametrize("key", [str, float], ids=["identified by the key", "identified by its bytes"])
    def test_a_cache_counts_within_an_epoch_skips_nulls_and_restarts_after_a_deletion(self, key: type) -> None:
        def add(key: Any, value: int, so_far: int) -> Any:
            return so_far + value if value else None

        builder = StreamsBuilder(key=key)
        numbers = builder.stream("in", value=int, name="in").group_by_key()
        numbers.aggregate(lambda: 100, add, store=Store("sums", value=int), name="sum").to_stream().to("out", value=int)
        lane = lane_of(builder.build())
        intake = lane.intakes["in"]
        name = key(1)
        for epoch in ([1, 2], [0], [0, 5, 6]):
            for value in epoch:
                intake.process(name, value, 7, HEADERS)
            intake.process(None, 1, 7, ())
            intake.process(name, None, 7, ())
            lane.flush()
        written = [None if row.value is None else int.from_bytes(row.value, "big") for row in lane.outbox.drain()]
        assert written == [103, None, 111]
        assert lane.outbox.dropped["sum", "null key or value"] == 6

    @pytest.mark.parametrize("key", [str, float])
    def test_an_aggregator_that_fails_leaves_a_cached_table_as_it_was(self, key: type) -> None:
        builder = StreamsBuilder(key=key)
        builder.stream("in", value=int, name="in").group_by_key().aggregate(
            int, lambda key, value, so_far: so_far + 1 // value, store=Store("sums", value=int), name="sum"
        )
        lane = lane_of(builder.build())
        process = lane.intakes["in"].process
        process(key(1), 1, 7, ())
        with pytest.raises(ProcessingError, match=r"sum failed.*ZeroDivisionError"):
            process(key(1), 0, 7, ())
        assert lane.stores.store("sums").entry(key(1)) == (1, 7)

    def test_a_cached_aggregate_that_cannot_be_serialized_names_the_node(self) -> None:
        builder = StreamsBuilder()

        def wrong(key: Any, value: Any, so_far: Any) -> Any:
            return "no number"  # the store cannot serialize it

        builder.stream("in").group_by_key().aggregate(int, wrong, store=Store("sums", value=int), name="sum")
        with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError, match=r"(?s)sum .*test_aggregates.py"):
            driver.input("in").pipe(1, key="a")

    @pytest.mark.parametrize("key", [str, float])
    def test_an_error_that_names_its_node_passes_a_cached_table(self, key: type) -> None:
        def refuse(key: Any, value: int, so_far: int) -> int:
            raise TopologyError("as it is")

        builder = StreamsBuilder(key=key)
        builder.stream("in", value=int, name="in").group_by_key().aggregate(int, refuse, value=int)
        with pytest.raises(TopologyError, match=r"^as it is"):
            lane_of(builder.build()).intakes["in"].process(key(1), 1, 7, ())


class TestInPlace:
    """An aggregator may change its aggregate in place and return the same object."""

    RECORDS = (("a", 1), ("a", 2), ("b", 5), ("a", 3))

    @staticmethod
    def append(key: Any, value: int, so_far: list[int]) -> list[int]:
        so_far.append(value)
        return so_far

    @staticmethod
    def sums(builder: StreamsBuilder, lists: KTable[Any, Any]) -> None:
        groups = lists.group_by(lambda key, values: ("all", sum(values)), value=int)
        total = groups.aggregate(int, lambda _, new, all_: all_ + new, lambda _, old, all_: all_ - old, value=int)
        total.to_stream().to("out", value=int)

    def test_the_old_value_is_what_the_table_held_before_the_epoch(self) -> None:
        builder = StreamsBuilder()
        self.sums(builder, builder.stream("in").group_by_key().aggregate(list, self.append, value=list))
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe_pairs(self.RECORDS)
            assert driver.output("out").values() == [1, 3, 8, 11]

    def test_the_old_value_is_what_a_group_held_before_the_epoch(self) -> None:
        def remove(key: Any, value: int, so_far: list[int]) -> list[int]:
            so_far.remove(value)
            return so_far

        builder = StreamsBuilder()
        groups = builder.table("in", value=int).group_by(lambda key, value: (key[0], value), value=int)
        self.sums(builder, groups.aggregate(list, self.append, remove, value=list))
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe_pairs([("a1", 1), ("a2", 2), ("b1", 5), ("a1", 3), ("a2", None)])
            assert driver.output("out").values()[-1] == 8

    def test_several_changes_in_one_epoch_are_merged_into_one(self) -> None:
        builder = StreamsBuilder()
        table = builder.stream("in", name="in").group_by_key().aggregate(list, self.append, store=Store("lists", value=list))
        listening = Changes()
        with listening.below(builder, table, caching=True, old=True) as driver:
            lane = driver._lane
            for epoch in ([1, 2], [3, 4]):
                for value in epoch:
                    lane.intakes["in"].process("a", value, 0, ())
                    assert [kept[-1] for _, kept in lane.stores.store("lists").all()] == [
                        value
                    ]  # a scan in between changes nothing
                lane.flush()
        assert listening.changes() == [("a", [1, 2], None), ("a", [1, 2, 3, 4], [1, 2])]

    @pytest.mark.parametrize("windows", [tumbling(1000), sliding(1000, grace=0), None], ids=["tumbling", "sliding", "ttl"])
    def test_the_old_value_of_a_cached_table_is_the_stored_one(self, windows: Any) -> None:
        builder = StreamsBuilder()
        grouped = builder.stream("in").group_by_key()
        if windows is None:
            lists = grouped.aggregate(list, self.append, store=Store("lists", value=list, ttl="1h"))
        else:
            lists = grouped.windowed_by(windows).aggregate(list, self.append, value=list)
        self.sums(builder, lists)
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in", start=100).pipe_pairs(self.RECORDS)
            assert driver.output("out").values() == [1, 3, 8, 11]

    def test_a_value_read_from_the_table_does_not_change_later(self) -> None:
        builder = StreamsBuilder()
        lists = builder.stream("in", name="in").group_by_key().aggregate(list, self.append, value=list)
        asked = builder.stream("ask", name="ask").join(lists, lambda value, found: found)
        asked.to_table(store=Store("answers", value=list)).to_stream().to("out", value=list)
        lane = lane_of(builder.build())
        lane.intakes["in"].process("a", 1, 0, ())
        lane.intakes["ask"].process("a", "?", 0, ())
        lane.intakes["in"].process("a", 2, 0, ())
        lane.flush()
        assert [row.value for row in lane.outbox.drain()] == [b"[1]"]


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

    def test_a_failure_names_the_node_and_one_below_is_not_reported_again(self) -> None:
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
