"""`KTable`'s verbs: what is forwarded, what is kept, what is sent for deletions."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock import (
    KTable,
    Store,
    StreamsBuilder,
    ValueTransformer,
    key_value_store,
    max_records,
    tumbling,
    until_time_limit,
    until_window_closes,
)
from penstock.errors import ProcessingError, TopologyError
from penstock.state import StoreKind
from penstock.testing import TopologyTestDriver
from tests.unit.dsl.running import HEADERS, outputs, run


def big(key: str, value: int) -> bool:
    return value > 1


class TestFilter:
    def test_over_a_source_table_that_is_not_kept_sends_tombstones_for_what_it_never_let_through(self) -> None:
        builder = StreamsBuilder()
        builder.table("in").filter(big).to_stream().to("out")
        assert not builder.build().stores
        assert run(builder, ("in", "a", 1), ("in", "b", 2), ("in", "b", 0)) == [("a", None), ("b", 2), ("b", None)]

    def test_over_a_filter_over_such_a_table_does_the_same(self) -> None:
        builder = StreamsBuilder()
        builder.table("in").filter(big).filter(lambda key, value: value < 9).to_stream().to("out")
        assert run(builder, ("in", "a", 1), ("in", "b", 2), ("in", "c", 10)) == [("a", None), ("b", 2), ("c", None)]

    @pytest.mark.parametrize("caching", [True, False])
    def test_over_a_source_table_that_is_kept_it_does_not(self, caching: bool) -> None:
        builder = StreamsBuilder()
        builder.table("in", store="kept").filter(big).to_stream().to("out")
        assert run(builder, ("in", "a", 1), ("in", "b", 2), ("in", "b", 0), caching=caching) == [("b", 2), ("b", None)]

    def test_kept_in_a_store_of_its_own_it_sends_no_needless_tombstones_either(self) -> None:
        builder = StreamsBuilder()
        table = builder.table("in", store="all").filter(big, store="big")
        table.to_stream().to("out")
        assert table.queryable_store_name == "big"
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe_pairs([("a", 1), ("b", 2), ("c", 3), ("b", None)])
            assert dict(driver.store("big").items()) == {"c": 3}
            assert driver.output("out").pairs() == [("b", 2), ("c", 3), ("b", None)]

    def test_filter_not_keeps_the_others(self) -> None:
        builder = StreamsBuilder()
        builder.table("in", store="kept").filter_not(big).to_stream().to("out")
        assert run(builder, ("in", "a", 1), ("in", "b", 2)) == [("a", 1)]

    @pytest.mark.parametrize("verb", ["filter", "filter_not", "group_by"])
    def test_takes_a_function_of_key_and_value(self, verb: str) -> None:
        with pytest.raises(TopologyError, match=rf"{verb} calls its function with \(key, value\).*test_tables.py"):
            getattr(StreamsBuilder().table("in"), verb)(lambda value: True)

    def test_over_a_versioned_table_sends_all_tombstones(self) -> None:
        builder = StreamsBuilder()
        builder.table("in", store=Store("history", history="1h")).filter(big).to_stream().to("out")
        assert run(builder, ("in", "a", 1, 10), ("in", "a", 2, 20)) == [("a", None), ("a", 2)]


class TestMapValues:
    def test_maps_values_and_lets_tombstones_pass(self) -> None:
        builder = StreamsBuilder()
        builder.table("in").map_values(lambda value: value * 10).to_stream().to("out")
        got = outputs(builder, ("in", "a", 1, 3), ("in", "a", None, 4))
        assert [(record.key, record.value, record.timestamp, record.headers) for record in got] == [
            ("a", 10, 3, HEADERS),
            ("a", None, 4, HEADERS),
        ]

    def test_may_see_the_key_and_be_kept(self) -> None:
        builder = StreamsBuilder()
        mapped = builder.table("in", value=int).map_values(lambda key, value: key * value, with_key=True, value=str, store="m")
        assert mapped.queryable_store_name == "m"
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe(3, key="a")
            assert driver.store("m")["a"] == "aaa"

    def test_takes_a_function_of_the_value(self) -> None:
        with pytest.raises(TopologyError, match=r"map_values calls its function with \(value\)"):
            StreamsBuilder().table("in").map_values(lambda key, value: value)  # type: ignore[misc,arg-type] # wrong on purpose

    def test_a_store_without_a_name_takes_a_number_but_is_not_kept(self) -> None:
        builder = StreamsBuilder()
        table = builder.table("in").map_values(lambda value: value, store=Store(value=int))
        assert table.queryable_store_name is None
        table.to_stream().to("out")
        topology = builder.build()
        assert list(topology.nodes)[-1] == "KSTREAM-SINK-0000000006"
        assert not topology.stores


class Counting(ValueTransformer[str, Any, Any]):
    def transform(self, key: str, value: Any) -> Any:
        seen = self.context.store("seen")
        seen[key] = (seen.get(key) or 0) + 1
        return [value, seen[key]]


class TestTransformValues:
    @pytest.mark.parametrize("store", [None, "kept", Store()])
    def test_transforms_with_a_store(self, store: str | Store | None) -> None:
        builder = StreamsBuilder()
        builder.add_state_store(key_value_store("seen", value=int))
        table = builder.table("in").transform_values(Counting, stores=["seen"], store=store)
        table.to_stream().to("out")
        assert table.queryable_store_name == ("kept" if store == "kept" else None)
        assert run(builder, ("in", "a", "x"), ("in", "a", "y")) == [("a", ["x", 1]), ("a", ["y", 2])]

    def test_a_store_it_is_not_connected_to_is_refused_when_it_is_asked_for(self) -> None:
        builder = StreamsBuilder()
        builder.add_state_store(key_value_store("seen", value=int))
        builder.table("in").transform_values(Counting, name="count").to_stream().to("out")
        with pytest.raises(TopologyError, match=r"count uses store 'seen' without being connected to it \(.*test_tables.py"):
            run(builder, ("in", "a", "x"))

    def test_a_supplier_takes_no_arguments(self) -> None:
        with pytest.raises(TopologyError, match=r"transform_values calls its function with \(\)"):
            StreamsBuilder().table("in").transform_values(lambda context: Counting())


class TestToStream:
    def test_may_choose_new_keys(self) -> None:
        builder = StreamsBuilder()
        stream = builder.table("in").to_stream(lambda key, value: value, key=int)
        stream.to("out")
        assert list(builder.build().nodes)[2:4] == ["KTABLE-TOSTREAM-0000000003", "KSTREAM-KEY-SELECT-0000000004"]
        assert run(builder, ("in", "a", 1)) == [(1, 1)]


class TestSuppress:
    def test_the_final_result_of_a_window_comes_once_when_it_closes(self) -> None:
        builder = StreamsBuilder()
        counts = builder.stream("in").group_by_key().windowed_by(tumbling(10, grace=5)).count()
        counts.suppress(until_window_closes(name="wait")).to_stream(lambda key, value: key.key).to("out")
        topology = builder.build()
        assert "wait-store" in topology.stores
        got = run(builder, ("in", "a", 1, 0), ("in", "a", 1, 14), ("in", "a", 1, 9), ("in", "a", 1, 15))
        assert got == [("a", 2)]

    def test_waiting_for_a_window_needs_a_window(self) -> None:
        with pytest.raises(TopologyError, match=r"no window above 'KTABLE-SOURCE-0000000002' \(.*test_tables.py"):
            StreamsBuilder().table("in").suppress(until_window_closes())

    def test_changes_wait_for_a_while(self) -> None:
        builder = StreamsBuilder()
        builder.table("in").suppress(until_time_limit(10)).to_stream().to("out")
        got = run(builder, ("in", "a", 1, 0), ("in", "a", 2, 5), ("in", "b", 1, 10))
        assert got == [("a", 2)]

    def test_a_suppressed_table_has_the_old_values_of_the_one_above(self) -> None:
        builder = StreamsBuilder()
        held = builder.table("in").suppress(until_time_limit(5, buffer=max_records(9)))
        held.group_by(lambda key, value: (str(value), value)).count(store="sizes")
        with TopologyTestDriver(builder.build()) as driver:
            topic = driver.input("in")
            topic.pipe(1, key="a", timestamp=0)
            topic.pipe(2, key="a", timestamp=10)
            topic.pipe(3, key="a", timestamp=20)
            topic.pipe(3, key="b", timestamp=30)
            assert {key: value for key, value in driver.store("sizes").items() if value} == {"3": 1}

    def test_a_derived_table_may_be_asked_for_old_values_below_a_suppression(self) -> None:
        builder = StreamsBuilder()
        held = builder.table("in").filter(big).suppress(until_time_limit(0)).map_values(lambda value: value)
        held.left_join(builder.table("other"), lambda one, two: [one, two]).to_stream().to("out")
        got = run(builder, ("in", "a", 2), ("in", "a", 1))
        assert got == [("a", [2, None]), ("a", None)]

    def test_a_suppressed_table_can_be_joined(self) -> None:
        builder = StreamsBuilder()
        held = builder.table("in").suppress(until_time_limit(0))
        builder.stream("asks").join(held, lambda ask, fact: [ask, fact]).to("out")
        assert run(builder, ("in", "a", 1), ("asks", "a", "?")) == [("a", ["?", 1])]

    def test_versioned_tables_are_refused(self) -> None:
        builder = StreamsBuilder()
        builder.table("in", store=Store("history", history="1h")).suppress(until_time_limit(0))
        with pytest.raises(TopologyError, match=r"suppress\(\) cannot be used on a versioned table \(.*test_tables.py"):
            builder.build()


class TestStore:
    def test_says_how_a_table_is_kept(self) -> None:
        builder = StreamsBuilder()
        options = Store("kept", key=int, value=str, ttl="1s", caching=False, logging={"b": "2", "a": "1"})
        assert builder.table("in", store=options).queryable_store_name == "kept"
        spec = builder.build().stores["kept"]
        assert (spec.kind, spec.ttl_ms, spec.cached, spec.logged) == (StoreKind.TIMESTAMPED, 1000, False, True)
        assert spec.changelog_config == (("a", "1"), ("b", "2"))
        assert (repr(spec.key), repr(spec.value)) == ("Int64()", "String()")

    def test_history_makes_a_versioned_table(self) -> None:
        builder = StreamsBuilder()
        builder.table("in", store=Store("kept", history="1h", segment_interval="10m", logging=False))
        spec = builder.build().stores["kept"]
        assert (spec.kind, spec.retention_ms, spec.segment_ms) == (StoreKind.VERSIONED, 3_600_000, 600_000)
        assert not spec.logged

    def test_a_table_nobody_reads_by_key_is_not_kept(self) -> None:
        builder = StreamsBuilder()
        assert builder.table("in").queryable_store_name is None
        assert not builder.build().stores

    def test_windows_are_kept_at_least_as_long_as_they_are_open(self) -> None:
        clicks = StreamsBuilder().stream("in").group_by_key().windowed_by(tumbling("1m", grace="5s"))
        with pytest.raises(TopologyError, match=r"Store 'short' must keep .* at least 65000 ms, not 1000 ms \(.*test_tables.py"):
            clicks.count(store=Store("short", retention="1s"))


class TestCaching:
    def count(self) -> StreamsBuilder:
        builder = StreamsBuilder()
        doubled = builder.stream("in").flat_map_values(lambda value: [value] * 3)
        doubled.group_by_key().count(store="counts").to_stream().to("out")
        return builder

    def test_lets_out_the_last_change_of_each_key_per_epoch(self) -> None:
        assert run(self.count(), ("in", "a", 1), ("in", "a", 1)) == [("a", 3), ("a", 6)]

    def test_switched_off_lets_out_all_of_them(self) -> None:
        assert [value for _, value in run(self.count(), ("in", "a", 1), caching=False)] == [1, 2, 3]

    def test_switched_off_for_one_table_lets_out_all_of_its_changes(self) -> None:
        builder = StreamsBuilder()
        doubled = builder.stream("in").flat_map_values(lambda value: [value] * 3)
        doubled.group_by_key().count(store=Store("counts", caching=False)).to_stream().to("out")
        assert [value for _, value in run(builder, ("in", "a", 1))] == [1, 2, 3]


class TestGroupBy:
    def grouped(self, builder: StreamsBuilder) -> Any:
        return builder.table("in").group_by(lambda key, value: (value["team"], value["points"]), value=int, name="teams")

    RECORDS = (
        ("in", "ann", {"team": "x", "points": 1}),
        ("in", "bob", {"team": "x", "points": 2}),
        ("in", "ann", {"team": "y", "points": 5}),
        ("in", "bob", None),
    )

    def test_counts_entries_not_records(self) -> None:
        builder = StreamsBuilder()
        self.grouped(builder).count(store="sizes")
        assert self.last(builder, "sizes") == {"x": 0, "y": 1}

    def test_reduces_with_an_adder_and_a_subtractor(self) -> None:
        builder = StreamsBuilder()
        self.grouped(builder).reduce(lambda total, new: total + new, lambda total, old: total - old, store="sums")
        assert self.last(builder, "sums") == {"x": 0, "y": 5}

    def test_aggregates_with_an_initializer(self) -> None:
        builder = StreamsBuilder()
        self.grouped(builder).aggregate(
            list,
            lambda key, value, points: [*points, value],
            lambda key, value, points: [point for point in points if point != value],
            store="lists",
        )
        assert self.last(builder, "lists") == {"x": [], "y": [5]}

    def test_of_a_versioned_table_passes_over_what_did_not_become_the_latest(self) -> None:
        for history, expected in ((None, [1, 2]), ("1h", [1])):
            builder = StreamsBuilder()
            table = builder.table("in", store=Store("kept", history=history))
            sums = table.group_by(lambda key, value: ("all", value), value=int).reduce(lambda a, b: b, lambda a, b: a)
            sums.to_stream().to("out")
            got = run(builder, ("in", "a", 1, 10), ("in", "a", 2, 5), caching=False)
            assert list(dict.fromkeys(value for _, value in got)) == expected

    def test_named_groups_share_their_exchange(self) -> None:
        builder = StreamsBuilder()
        grouped = self.grouped(builder)
        grouped.count(store="sizes")
        grouped.reduce(lambda total, new: total + new, lambda total, old: total - old, store="sums")
        assert list(builder.build().exchanges) == ["teams-repartition"]

    def test_functions_of_the_wrong_arity_are_refused(self) -> None:
        grouped = self.grouped(StreamsBuilder())
        with pytest.raises(TopologyError, match=r"reduce's subtractor calls its function with \(aggregate, value\)"):
            grouped.reduce(lambda total, new: total, lambda total: total)
        with pytest.raises(TopologyError, match=r"aggregate's adder calls its function with \(key, value, aggregate\)"):
            grouped.aggregate(int, lambda value, total: total, lambda key, value, total: total)

    def last(self, builder: StreamsBuilder, store: str) -> dict[Any, Any]:
        with TopologyTestDriver(builder.build()) as driver:
            for topic, key, value in self.RECORDS:
                driver.input(topic).pipe(value, key=key)
            return dict(driver.store(store).items())


class TestJoins:
    def pair(self, builder: StreamsBuilder) -> tuple[KTable[Any, Any], KTable[Any, Any]]:
        return builder.table("left"), builder.table("right")

    INPUT = (("left", "a", 1), ("right", "b", 2), ("right", "a", 3), ("left", "a", None), ("right", "b", None))

    @pytest.mark.parametrize(
        ("verb", "expected"),
        [
            ("join", [("a", [1, 3]), ("a", None)]),
            ("left_join", [("a", [1, None]), ("a", [1, 3]), ("a", None)]),
            ("outer_join", [("a", [1, None]), ("b", [None, 2]), ("a", [1, 3]), ("a", [None, 3]), ("b", None)]),
        ],
    )
    def test_by_key(self, verb: str, expected: list[tuple[Any, Any]]) -> None:
        builder = StreamsBuilder()
        left, right = self.pair(builder)
        getattr(left, verb)(right, lambda one, two: [one, two]).to_stream().to("out")
        assert run(builder, *self.INPUT) == expected

    def test_a_join_may_be_kept_and_read_again(self) -> None:
        builder = StreamsBuilder()
        left, right = self.pair(builder)
        joined = left.join(right, lambda one, two: one + two, store="sums", value=int)
        assert joined.queryable_store_name == "sums"
        builder.stream("asks").join(joined, lambda ask, total: total).to("out")
        assert run(builder, ("left", "a", 1), ("right", "a", 3), ("asks", "a", "?")) == [("a", 4)]

    def test_a_join_that_is_not_kept_is_read_through_both_sides(self) -> None:
        builder = StreamsBuilder()
        left, right = self.pair(builder)
        joined = left.join(right, lambda one, two: one + two)
        builder.stream("asks").join(joined, lambda ask, total: total).to("out")
        joined.group_by(lambda key, value: ("all", value)).reduce(lambda a, b: a + b, lambda a, b: a - b).to_stream().to("sum")
        with TopologyTestDriver(builder.build()) as driver:
            for topic, key, value in (("left", "a", 1), ("right", "a", 3), ("left", "a", 2), ("asks", "a", "?")):
                driver.input(topic).pipe(value, key=key)
            assert driver.output("out").values() == [5]
            assert driver.output("sum").values()[-1] == 5

    @pytest.mark.parametrize("with_key", [False, True])
    def test_by_foreign_key(self, with_key: bool) -> None:
        builder = StreamsBuilder()
        left, right = self.pair(builder)
        on: Any = (lambda key, value: value["of"]) if with_key else (lambda value: value["of"])
        join: Any = left.join
        join(right, lambda one, two: [one["n"], two], on=on, with_key=with_key, store="joined").to_stream().to("out")
        got = run(
            builder,
            ("left", "1", {"of": "a", "n": 1}),
            ("right", "a", "A"),
            ("left", "2", {"of": "a", "n": 2}),
            ("right", "a", "B"),
        )
        assert got == [("1", [1, "A"]), ("2", [2, "A"]), ("1", [1, "B"]), ("2", [2, "B"])]

    def test_left_by_foreign_key(self) -> None:
        builder = StreamsBuilder()
        left, right = self.pair(builder)
        left.left_join(right, lambda one, two: [one, two], on=lambda value: value, name="fk").to_stream().to("out")
        assert run(builder, ("left", "1", "a"), ("right", "a", "A")) == [("1", ["a", None]), ("1", ["a", "A"])]
        assert list(builder.build().exchanges) == ["fk-subscription-registration-topic", "fk-subscription-response-topic"]

    def test_there_is_no_outer_join_by_foreign_key(self) -> None:
        left, right = self.pair(StreamsBuilder())
        with pytest.raises(TypeError, match=r"outer_join.* unexpected keyword argument 'on'"):
            cast("Any", left).outer_join(right, lambda one, two: one, on=lambda value: value)

    def test_functions_of_the_wrong_arity_are_refused(self) -> None:
        left, right = self.pair(StreamsBuilder())
        with pytest.raises(TopologyError, match=r"left_join calls its function with \(left, right\).*test_tables.py"):
            cast("Any", left).left_join(right, lambda one: one)
        with pytest.raises(TopologyError, match=r"join's on= calls its function with \(value\)"):
            cast("Any", left).join(right, lambda one, two: one, on=lambda key, value: value)

    def test_a_joiner_that_fails_names_its_node_and_line(self) -> None:
        builder = StreamsBuilder()
        left, right = self.pair(builder)
        left.join(right, lambda one, two: one / 0, name="both").to_stream().to("out")
        with pytest.raises(ProcessingError, match=r"(?s)both-join-other failed.*right-0 at offset 0.*test_tables.py"):
            run(builder, ("left", "a", 1), ("right", "a", 3))
