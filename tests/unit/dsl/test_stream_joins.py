"""What a stream joins with, and what it refuses."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock import KStream, Store, StreamsBuilder
from penstock.errors import TopologyError
from tests.unit.dsl.running import HEADERS, outputs, run


def both(left: Any, right: Any) -> list[Any]:
    return [left, right]


def pair(builder: StreamsBuilder) -> tuple[KStream[Any, Any], KStream[Any, Any]]:
    return builder.stream("left"), builder.stream("right")


class TestStreams:
    RECORDS = (("left", "a", 1, 0), ("right", "a", 2, 10), ("left", "a", 3, 12), ("right", "b", 4, 30), ("left", "c", 5, 60))

    @pytest.mark.parametrize(
        ("verb", "expected"),
        [
            ("join", [("a", [1, 2]), ("a", [3, 2])]),
            ("left_join", [("a", [1, 2]), ("a", [3, 2])]),
            ("outer_join", [("a", [1, 2]), ("a", [3, 2]), ("b", [None, 4])]),
        ],
    )
    def test_records_near_each_other_are_paired(self, verb: str, expected: list[Any]) -> None:
        builder = StreamsBuilder()
        left, right = pair(builder)
        getattr(left, verb)(right, both, within=10, grace=0).to("out")
        assert run(builder, *self.RECORDS) == expected

    def test_within_may_be_one_sided(self) -> None:
        builder = StreamsBuilder()
        left, right = pair(builder)
        left.join(right, both, within=(0, 10)).to("out")
        assert run(builder, ("right", "a", 1, 0), ("left", "a", 2, 5), ("right", "a", 3, 15)) == [("a", [2, 3])]

    def test_a_pair_has_the_later_time_and_the_headers_of_the_record_that_completed_it(self) -> None:
        builder = StreamsBuilder()
        left, right = pair(builder)
        left.join(right, both, within=10).to("out")
        (record,) = outputs(builder, ("left", "a", 1, 9), ("right", "a", 2, 5))
        assert (record.timestamp, record.headers) == (9, HEADERS)

    def test_the_joiner_may_see_the_key(self) -> None:
        builder = StreamsBuilder()
        left, right = pair(builder)
        left.join(right, lambda key, one, two: [key, one, two], within=10, with_key=True).to("out")
        assert run(builder, ("left", "a", 1), ("right", "a", 2)) == [("a", ["a", 1, 2])]

    def test_names_and_stores_are_named_after_the_join(self) -> None:
        builder = StreamsBuilder()
        left, right = pair(builder)
        moved = right.select_key(lambda key, value: key)
        options: dict[str, Any] = {"within": 10, "name": "paid", "store_name": "kept", "logging": {"b": "2"}}
        left.left_join(moved, both, **options).to("out")
        topology = builder.build()
        assert [name for name in topology.nodes if name.startswith("paid")] == [
            "paid-right-repartition-filter",
            "paid-right-repartition-sink",
            "paid-right-repartition-source",
            "paid-this-windowed",
            "paid-other-windowed",
            "paid-this-join",
            "paid-outer-other-join",
            "paid-merge",
        ]
        assert list(topology.stores) == [
            "kept-this-join-store",
            "kept-outer-other-join-store",
            "kept-left-shared-join-store",
        ]
        assert ("b", "2") in topology.stores["kept-this-join-store"].changelog_config

    def test_an_outer_join_names_its_shared_store_so(self) -> None:
        builder = StreamsBuilder()
        left, right = pair(builder)
        left.outer_join(right, both, within=10, store_name="kept", logging=False)
        topology = builder.build()
        assert "kept-outer-shared-join-store" in topology.stores
        assert not any(spec.logged for spec in topology.stores.values())

    def test_the_topics_of_both_sides_belong_together(self) -> None:
        builder = StreamsBuilder()
        left, right = pair(builder)
        left.join(right, both, within=10)
        assert builder.build().copartitioned == (frozenset({"KSTREAM-SOURCE-0000000000", "KSTREAM-SOURCE-0000000001"}),)

    def test_how_far_apart_must_be_said(self) -> None:
        left, right = pair(StreamsBuilder())
        with pytest.raises(TopologyError, match=r"outer_join with a stream needs within=.*test_stream_joins.py"):
            cast("Any", left).outer_join(right, both)

    def test_on_is_not_for_streams(self) -> None:
        left, right = pair(StreamsBuilder())
        with pytest.raises(TopologyError, match=r"join with a stream takes no on= \(.*test_stream_joins.py"):
            cast("Any", left).left_join(right, both, within=10, on=lambda key, value: key)

    @pytest.mark.parametrize("with_key", [True, False])
    def test_a_joiner_of_the_wrong_arity_is_refused(self, with_key: bool) -> None:
        left, right = pair(StreamsBuilder())
        expected = r"\(key, left, right\)" if with_key else r"\(left, right\)"
        with pytest.raises(TopologyError, match=rf"join calls its function with {expected}.*test_stream_joins.py"):
            cast("Any", left).join(right, lambda one: one, within=10, with_key=with_key)


class TestTables:
    def test_a_record_meets_what_the_table_holds_when_it_comes(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").join(builder.table("facts"), both).to("out")
        records = (("in", "a", 1), ("facts", "a", "x"), ("in", "a", 2), ("facts", "a", None), ("in", "a", 3))
        assert run(builder, *records) == [("a", [2, "x"])]

    def test_a_left_join_lets_everything_through(self) -> None:
        builder = StreamsBuilder()
        joined = builder.stream("in").left_join(
            builder.table("facts"), lambda key, one, two: [key, one, two], with_key=True, name="look"
        )
        joined.to("out")
        assert "look" in builder.build().nodes
        assert run(builder, ("in", "a", 1), ("facts", "a", "x"), ("in", "a", 2)) == [("a", ["a", 1, None]), ("a", ["a", 2, "x"])]

    def test_with_grace_it_waits_and_looks_into_history(self) -> None:
        builder = StreamsBuilder()
        facts = builder.table("facts", store=Store("facts", history=100))
        builder.stream("in").join(facts, both, grace=10, name="look").to("out")
        assert "look-Buffer" in builder.build().stores
        records = (
            ("facts", "a", "new", 20),
            ("in", "a", 1, 25),
            ("facts", "a", "old", 24),
            ("in", "a", 2, 40),
            ("in", "a", 3, 60),
        )
        assert run(builder, *records) == [("a", [1, "old"]), ("a", [2, "old"])]

    def test_grace_needs_a_history(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").join(builder.table("facts"), both, grace=10)
        with pytest.raises(TopologyError, match=r"needs a versioned table.*test_stream_joins.py"):
            builder.build()

    def test_grace_needs_a_history_that_is_long_enough(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").join(builder.table("facts", store=Store("facts", history=5)), both, grace=10)
        with pytest.raises(TopologyError, match="at least as long as the join's grace of 10 ms"):
            builder.build()

    def test_a_rekeyed_stream_goes_through_an_exchange_named_after_the_join(self) -> None:
        builder = StreamsBuilder()
        moved = builder.stream("in").select_key(lambda key, value: value)
        moved.join(builder.table("facts"), both, name="look").to("out")
        assert list(builder.build().exchanges) == ["look-repartition"]
        assert run(builder, ("facts", "b", 1), ("in", "a", "b")) == [("b", ["b", 1])]

    def test_there_is_no_outer_join_with_a_table(self) -> None:
        builder = StreamsBuilder()
        with pytest.raises(TopologyError, match=r"A stream has no outer join with a table \(.*test_stream_joins.py"):
            cast("Any", builder.stream("in")).outer_join(builder.table("facts"), both)

    @pytest.mark.parametrize("option", [{"within": 5}, {"on": lambda key, value: key}, {"store_name": "x"}])
    def test_what_is_for_streams_is_refused(self, option: dict[str, Any]) -> None:
        builder = StreamsBuilder()
        with pytest.raises(TopologyError, match=rf"join with a table takes no {next(iter(option))}="):
            builder.stream("in").left_join(builder.table("facts"), both, **option)


class TestGlobalTables:
    def test_a_record_meets_the_entry_of_any_key(self) -> None:
        builder = StreamsBuilder()
        rates = builder.global_table("rates")
        builder.stream("in").join(rates, both, on=lambda key, value: value).to("out")
        assert run(builder, ("rates", "chf", 1.1), ("in", "a", "chf"), ("in", "b", "eur")) == [("a", ["chf", 1.1])]

    def test_a_left_join_lets_everything_through(self) -> None:
        builder = StreamsBuilder()
        rates = builder.global_table("rates")
        builder.stream("in").left_join(rates, both, on=lambda key, value: value, name="convert").to("out")
        assert "convert" in builder.build().nodes
        assert run(builder, ("in", "a", "eur")) == [("a", ["eur", None])]

    def test_a_new_key_needs_no_exchange(self) -> None:
        builder = StreamsBuilder()
        moved = builder.stream("in").select_key(lambda key, value: value)
        moved.join(builder.global_table("rates"), both, on=lambda key, value: key).to("out")
        assert not builder.build().exchanges

    def test_on_is_needed_and_takes_key_and_value(self) -> None:
        builder = StreamsBuilder()
        rates = builder.global_table("rates")
        with pytest.raises(TopologyError, match="left_join with a global table needs on="):
            cast("Any", builder.stream("in")).left_join(rates, both)
        with pytest.raises(TopologyError, match=r"join's on= calls its function with \(key, value\).*test_stream_joins.py"):
            builder.stream("in").join(rates, both, on=cast("Any", lambda value: value))

    def test_there_is_no_outer_join_with_a_global_table(self) -> None:
        builder = StreamsBuilder()
        rates: Any = builder.global_table("rates")
        with pytest.raises(TopologyError, match="no outer join with a global table"):
            cast("Any", builder.stream("in")).outer_join(rates, both)

    def test_what_is_for_others_is_refused(self) -> None:
        builder = StreamsBuilder()
        rates = builder.global_table("rates")
        with pytest.raises(TopologyError, match="join with a global table takes no within="):
            cast("Any", builder.stream("in")).left_join(rates, both, on=lambda key, value: key, within=5)
