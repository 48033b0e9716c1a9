"""Grouped, windowed and cogrouped streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    EmitStrategy,
    KGroupedStream,
    SessionWindowed,
    Store,
    StreamsBuilder,
    TimeWindowed,
    Windowed,
    hopping,
    session,
    sliding,
    tumbling,
    unlimited,
    until_window_closes,
)
from penstock.errors import ProcessingError, TopologyError
from penstock.testing import TopologyTestDriver
from penstock.topology import SinkNode
from tests.unit.dsl.running import outputs, run


def grouped(builder: StreamsBuilder, topic: str = "in", **options: Any) -> KGroupedStream[Any, Any]:
    return builder.stream(topic, value=int).group_by_key(**options)


def append(key: str, value: int, values: list[int]) -> list[int]:
    return [*values, value]


def join_lists(key: str, one: list[int], two: list[int]) -> list[int]:
    return one + two


class TestAggregates:
    def test_count_skips_null_keys_and_values(self) -> None:
        builder = StreamsBuilder()
        grouped(builder).count(store="counts").to_stream().to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe_pairs([("a", 1), (None, 1), ("a", None), ("a", 1)])
            assert driver.output("out").pairs() == [("a", 1), ("a", 2)]
            assert list(driver.dropped().values()) == [2]

    def test_a_result_has_the_highest_time_of_its_records(self) -> None:
        builder = StreamsBuilder()
        grouped(builder).count().to_stream().to("out")
        got = outputs(builder, ("in", "a", 1, 10), ("in", "a", 1, 5), ("in", "a", 1, 20))
        assert [record.timestamp for record in got] == [10, 10, 20]

    def test_reduce_starts_with_the_first_value(self) -> None:
        builder = StreamsBuilder()
        grouped(builder).reduce(lambda total, value: total * value).to_stream().to("out")
        assert run(builder, ("in", "a", 3), ("in", "a", 4), ("in", "b", 5)) == [("a", 3), ("a", 12), ("b", 5)]

    def test_an_aggregate_that_becomes_null_is_deleted_and_starts_anew(self) -> None:
        builder = StreamsBuilder()
        kept = grouped(builder).aggregate(int, lambda key, value, total: total + value if value else None, value=int, store="t")
        kept.to_stream().to("out")
        assert run(builder, ("in", "a", 3), ("in", "a", 0), ("in", "a", 4)) == [("a", 3), ("a", None), ("a", 4)]

    def test_an_aggregator_that_fails_names_its_node(self) -> None:
        builder = StreamsBuilder()
        grouped(builder).aggregate(int, lambda key, value, total: total // value, value=int, name="divide").to_stream().to("out")
        with pytest.raises(ProcessingError, match=r"(?s)divide failed.*in-0 at offset 1.*ZeroDivision.*test_grouped.py"):
            run(builder, ("in", "a", 1), ("in", "a", 0))

    @pytest.mark.parametrize(
        ("verb", "arguments", "message"),
        [
            ("reduce", (lambda value: value,), r"reduce calls its function with \(aggregate, value\)"),
            ("aggregate", (lambda key: 0, append), r"aggregate's initializer calls its function with \(\)"),
            ("aggregate", (list, lambda value, total: total), r"aggregate calls its function with \(key, value, aggregate\)"),
        ],
    )
    def test_functions_of_the_wrong_arity_are_refused(self, verb: str, arguments: tuple[Any, ...], message: str) -> None:
        with pytest.raises(TopologyError, match=message + ".*test_grouped.py"):
            getattr(grouped(StreamsBuilder()), verb)(*arguments)
        with pytest.raises(TopologyError, match=message):
            getattr(grouped(StreamsBuilder()).windowed_by(tumbling(5)), verb)(*arguments)

    def test_a_count_in_a_store_without_a_name_skips_a_number(self) -> None:
        for windows in (None, tumbling(5)):
            builder = StreamsBuilder()
            target: Any = grouped(builder) if windows is None else grouped(builder).windowed_by(windows)
            assert target.count(store=Store()).queryable_store_name is None
            topology = builder.build()
            assert list(topology.stores) == ["KSTREAM-AGGREGATE-STATE-STORE-0000000002"]
            assert list(topology.nodes)[-1] == "KSTREAM-AGGREGATE-0000000003"

    def test_a_named_group_shares_its_exchange_and_names_it(self) -> None:
        builder = StreamsBuilder()
        by_value = builder.stream("in", value=int).group_by(lambda key, value: str(value), name="by-value")
        by_value.count(store="one")
        by_value.count(store="two")
        topology = builder.build()
        assert list(topology.exchanges) == ["by-value-repartition"]
        assert [name for name in topology.nodes if name.startswith("by-value-")] == [
            "by-value-repartition-filter",
            "by-value-repartition-sink",
            "by-value-repartition-source",
        ]

    def test_groups_without_a_name_have_an_exchange_each(self) -> None:
        builder = StreamsBuilder()
        by_value = builder.stream("in", value=int).group_by(lambda key, value: str(value))
        by_value.count()
        by_value.count(store="named")
        assert list(builder.build().exchanges) == ["KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition", "named-repartition"]

    def test_a_group_has_serdes_of_its_own(self) -> None:
        builder = StreamsBuilder()
        by_value = builder.stream("in").group_by(lambda key, value: value, key=int)
        by_value.count(store="counts")
        assert repr(builder.build().stores["counts"].key) == "Int64()"


def windows_of(builder: StreamsBuilder, *records: tuple[Any, ...]) -> list[tuple[int, int, Any]]:
    got = run(builder, *records)
    assert all(isinstance(key, Windowed) for key, _ in got)
    return [(key.start, key.end, value) for key, value in got]


class TestWindows:
    def test_tumbling_windows_divide_time(self) -> None:
        builder = StreamsBuilder()
        grouped(builder).windowed_by(tumbling(10)).count().to_stream().to("out")
        assert windows_of(builder, ("in", "a", 1, 0), ("in", "a", 1, 9), ("in", "a", 1, 10)) == [
            (0, 10, 1),
            (0, 10, 2),
            (10, 20, 1),
        ]

    def test_hopping_windows_overlap(self) -> None:
        builder = StreamsBuilder()
        grouped(builder).windowed_by(hopping(10, 5)).reduce(lambda total, value: total + value).to_stream().to("out")
        assert windows_of(builder, ("in", "a", 1, 7), ("in", "a", 2, 12)) == [(0, 10, 1), (5, 15, 1), (5, 15, 3), (10, 20, 2)]

    def test_sliding_windows_end_at_records(self) -> None:
        builder = StreamsBuilder()
        windowed = grouped(builder).windowed_by(sliding(10))
        windowed.aggregate(list, append, store="kept").to_stream().to("out")
        assert windows_of(builder, ("in", "a", 1, 20), ("in", "a", 2, 25)) == [(10, 20, [1]), (21, 31, [2]), (15, 25, [1, 2])]

    def test_unlimited_windows_have_one_window_from_their_start(self) -> None:
        builder = StreamsBuilder()
        grouped(builder).windowed_by(unlimited(5)).count().to_stream().to("out")
        got = windows_of(builder, ("in", "a", 1, 4), ("in", "a", 1, 5), ("in", "a", 1, 500))
        assert [(start, value) for start, _, value in got] == [(5, 1), (5, 2)]

    def test_sessions_grow_together(self) -> None:
        builder = StreamsBuilder()
        grouped(builder).windowed_by(session(10, grace=50)).aggregate(list, append, join_lists).to_stream().to("out")
        got = windows_of(builder, ("in", "a", 1, 0), ("in", "a", 2, 15), ("in", "a", 3, 8))
        assert got == [(0, 0, [1]), (15, 15, [2]), (0, 0, None), (15, 15, None), (0, 15, [1, 2, 3])]

    def test_sessions_count_and_reduce_without_a_merger(self) -> None:
        builder = StreamsBuilder()
        windowed = grouped(builder).windowed_by(session(10, grace=50))
        windowed.count().to_stream().to("out")
        windowed.reduce(lambda total, value: total * 10 + value).to_stream().to("digits")
        records = (("in", "a", 1, 0), ("in", "a", 2, 15), ("in", "a", 3, 8))
        assert windows_of(builder, *records)[-1] == (0, 15, 3)
        assert run(builder, *records, out="digits")[-1][1] == 123

    def test_sessions_need_a_merger(self) -> None:
        windowed = grouped(StreamsBuilder()).windowed_by(session(10))
        with pytest.raises(TopologyError, match=r"session windows needs a merger\(key, one, two\) \(.*test_grouped.py"):
            windowed.aggregate(list, append)

    def test_only_sessions_take_a_merger(self) -> None:
        windowed = grouped(StreamsBuilder()).windowed_by(tumbling(10))
        with pytest.raises(TopologyError, match=r"Only .* session windows takes a merger, not one over .*test_grouped.py"):
            windowed.aggregate(list, append, join_lists)

    def test_a_merger_takes_three_arguments(self) -> None:
        windowed = grouped(StreamsBuilder()).windowed_by(session(10))
        with pytest.raises(TopologyError, match=r"aggregate's merger calls its function with \(key, one, two\)"):
            windowed.aggregate(list, append, lambda one, two: one)  # type: ignore[arg-type, misc]

    @pytest.mark.parametrize("windows", [tumbling(10), sliding(10), session(10)])
    def test_each_window_may_be_emitted_once_when_it_closes(self, windows: Any) -> None:
        builder = StreamsBuilder()
        windowed = grouped(builder).windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        windowed.count(store=Store("counts", retention="1h")).to_stream().to("out")
        assert builder.build().stores["counts"].time_ordered
        got = windows_of(builder, ("in", "a", 1, 10), ("in", "a", 1, 10), ("in", "b", 1, 5_000))
        assert [value for _, _, value in got] == [2]

    def test_what_never_closes_is_not_emitted_on_close(self) -> None:
        windowed = grouped(StreamsBuilder()).windowed_by(unlimited())
        windowed.emit_strategy(EmitStrategy.ON_WINDOW_UPDATE)
        with pytest.raises(TopologyError, match=r"Unlimited windows never close.*test_grouped.py"):
            windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)

    @pytest.mark.parametrize(
        ("windows", "serde"),
        [
            (tumbling(10), TimeWindowed),
            (hopping(10, 5), TimeWindowed),
            (sliding(10), TimeWindowed),
            (session(10), SessionWindowed),
        ],
    )
    def test_the_serde_of_windowed_keys_follows_from_the_windows(self, windows: Any, serde: type) -> None:
        builder = StreamsBuilder()
        grouped(builder).windowed_by(windows).count().to_stream().to("out")
        (sink,) = (node for node in builder.build().nodes.values() if isinstance(node, SinkNode))
        assert isinstance(sink.key, serde)

    def test_retention_may_be_longer_than_the_window(self) -> None:
        builder = StreamsBuilder()
        grouped(builder).windowed_by(tumbling("1m")).count(store=Store("counts", retention="1d"))
        grouped(builder).windowed_by(session("1m")).count(store=Store("sessions", retention="2d"))
        assert {name: spec.retention_ms for name, spec in builder.build().stores.items()} == {
            "counts": 86_400_000,
            "sessions": 172_800_000,
        }

    def test_a_table_of_a_windowed_group_that_is_rekeyed_goes_through_an_exchange(self) -> None:
        builder = StreamsBuilder()
        by_value = builder.stream("in", value=int).group_by(lambda key, value: "all")
        by_value.windowed_by(tumbling(10)).count().to_stream().to("out")
        assert len(builder.build().exchanges) == 1
        assert windows_of(builder, ("in", "a", 1, 0), ("in", "b", 1, 1)) == [(0, 10, 1), (0, 10, 2)]


class TestCogroup:
    def both(self, builder: StreamsBuilder) -> Any:
        left, right = grouped(builder, "left"), grouped(builder, "right")
        return left.cogroup(append).cogroup(right, lambda key, value, values: [*values, -value])

    def test_streams_feed_one_aggregate(self) -> None:
        builder = StreamsBuilder()
        table = self.both(builder).aggregate(list, store="both")
        table.to_stream().to("out")
        assert table.queryable_store_name == "both"
        assert run(builder, ("left", "a", 1), ("right", "a", 2), ("left", "a", 3)) == [
            ("a", [1]),
            ("a", [1, -2]),
            ("a", [1, -2, 3]),
        ]

    def test_its_nodes_are_named_after_it(self) -> None:
        builder = StreamsBuilder()
        self.both(builder).aggregate(list, name="all", store="both")
        assert [name for name in builder.build().nodes if name.startswith("all")] == [
            "all-cogroup-agg-0",
            "all-cogroup-agg-1",
            "all-cogroup-merge",
        ]

    def test_the_same_stream_again_replaces_its_aggregator(self) -> None:
        builder = StreamsBuilder()
        left = grouped(builder, "left")
        left.cogroup(append).cogroup(left, lambda key, value, values: [*values, value * 100]).aggregate(list).to_stream().to(
            "out"
        )
        assert run(builder, ("left", "a", 1)) == [("a", [100])]

    def test_may_be_windowed(self) -> None:
        builder = StreamsBuilder()
        counted = self.both(builder).windowed_by(tumbling(10, grace=0)).aggregate(list)
        counted.to_stream().to("out")
        counted.suppress(until_window_closes()).to_stream().to("final")
        records = (("left", "a", 1, 0), ("right", "a", 2, 5), ("left", "a", 3, 12))
        assert windows_of(builder, *records) == [(0, 10, [1]), (0, 10, [1, -2]), (10, 20, [3])]
        assert [value for _, value in run(builder, *records, out="final")] == [[1, -2]]

    def test_may_be_windowed_into_sessions(self) -> None:
        builder = StreamsBuilder()
        self.both(builder).windowed_by(session(10)).aggregate(list, join_lists).to_stream().to("out")
        got = windows_of(builder, ("left", "a", 1, 0), ("right", "a", 2, 5))
        assert got[-1] == (0, 5, [1, -2])

    def test_only_sessions_take_a_merger(self) -> None:
        with pytest.raises(TopologyError, match=r"Only .* session windows takes a merger"):
            self.both(StreamsBuilder()).windowed_by(tumbling(10)).aggregate(list, join_lists)

    def test_takes_aggregators_of_three_arguments(self) -> None:
        with pytest.raises(TopologyError, match=r"cogroup calls its function with \(key, value, aggregate\).*test_grouped.py"):
            grouped(StreamsBuilder()).cogroup(lambda value, total: total)  # type: ignore[arg-type, misc]

    def test_sends_old_values_to_whom_needs_them(self) -> None:
        builder = StreamsBuilder()
        table = self.both(builder).aggregate(list)
        table.group_by(lambda key, value: ("all", len(value)), value=int).reduce(
            lambda total, new: total + new, lambda total, old: total - old
        ).to_stream().to("out")
        assert run(builder, ("left", "a", 1), ("right", "b", 2), ("left", "a", 3))[-1] == ("all", 3)

    def test_can_be_joined(self) -> None:
        builder = StreamsBuilder()
        table = self.both(builder).aggregate(list)
        builder.stream("asks").join(table, lambda ask, values: values).to("out")
        assert run(builder, ("left", "a", 1), ("asks", "a", "?")) == [("a", [1])]


@dataclass(frozen=True)
class NightsAndDays:
    """Windows of one's own: starts that no advance describes, out of a generator."""

    size_ms: int = 10
    grace_ms: int = 0
    retention_ms: int = 10

    def windows_for(self, timestamp: int) -> Iterator[int]:
        for start in (0, 3, 20):
            if start <= timestamp < start + self.size_ms:
                yield start


class TestWindowsOfOnesOwn:
    RECORDS = (("in", "k", 1, 1), ("in", "k", 2, 5), ("in", "k", 3, 15), ("in", "k", 4, 20), ("in", "k", 5, 60))

    def test_each_record_is_in_the_windows_they_name(self) -> None:
        builder = StreamsBuilder()
        table = grouped(builder).windowed_by(NightsAndDays()).aggregate(list, append, value=list)
        table.to_stream(lambda windowed, values: f"{windowed.start}-{windowed.end}").to("out")
        assert run(builder, *self.RECORDS) == [("0-10", [1]), ("0-10", [1, 2]), ("3-13", [2]), ("20-30", [4])]

    def test_they_close_as_others_do(self) -> None:
        builder = StreamsBuilder()
        windows = grouped(builder).windowed_by(NightsAndDays()).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        table = windows.aggregate(list, append, value=list)
        table.to_stream(lambda windowed, values: f"{windowed.start}-{windowed.end}").to("out")
        assert run(builder, *self.RECORDS) == [("0-10", [1, 2]), ("3-13", [2]), ("20-30", [4])]

    def test_a_store_must_keep_them_as_long_as_they_say(self) -> None:
        with pytest.raises(TopologyError, match="at least 10 ms, not 9 ms"):
            grouped(StreamsBuilder()).windowed_by(NightsAndDays()).count(store=Store(retention=9))
