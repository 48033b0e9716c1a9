"""`StreamsBuilder`: what a topology may be read from, shared sources, stores for processors, names."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, cast

import pytest

from penstock import (
    GlobalKTable,
    Processor,
    Record,
    Store,
    StreamsBuilder,
    key_value_store,
    otherwise,
    session,
    session_store,
    timestamped_key_value_store,
    timestamped_window_store,
    tumbling,
    versioned_store,
    window_store,
)
from penstock.errors import ProcessingError, TopologyError
from penstock.records import SourceRecord
from penstock.serdes import Json
from penstock.state import StoreKind
from penstock.testing import TopologyTestDriver
from penstock.timing import bounded_disorder, monotonous
from penstock.topology import SourceNode, Topology
from tests.unit.dsl.running import HEADERS, run


def sources(topology: Topology) -> dict[str, tuple[str, ...]]:
    return {node.name: node.topics for node in topology.nodes.values() if isinstance(node, SourceNode)}


def table_of_rates(builder: StreamsBuilder, refresh: Any = None) -> GlobalKTable[str, float]:
    return builder.global_table_from(
        lambda spark: None, lambda row: (row["of"], row["rate"]), store="rates", key=str, value=float, refresh=refresh
    )


def _event_time(record: SourceRecord[Any, Any]) -> int:
    return int(record.value)


class TestSources:
    def test_streams_of_one_topic_share_the_first_source(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to("one")
        builder.stream("in").to("two")
        topology = builder.build()
        assert sources(topology) == {"KSTREAM-SOURCE-0000000000": ("in",)}
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe(1)
            assert (driver.output("one").values(), driver.output("two").values()) == ([1], [1])

    def test_streams_of_one_pattern_share_the_first_source(self) -> None:
        builder = StreamsBuilder()
        builder.stream(re.compile("in-.*")).to("one")
        builder.stream(re.compile("in-.*")).to("two")
        builder.stream(re.compile("in-.*", re.IGNORECASE)).to("three")
        assert list(sources(builder.build())) == ["KSTREAM-SOURCE-0000000000", "KSTREAM-SOURCE-0000000004"]

    def test_the_order_of_topics_does_not_matter_for_sharing(self) -> None:
        builder = StreamsBuilder()
        builder.stream(["a", "b"]).to("one")
        builder.stream(["b", "a"]).to("two")
        assert list(sources(builder.build())) == ["KSTREAM-SOURCE-0000000000"]

    def test_streams_of_one_topic_agree_on_where_to_start(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", reset="earliest")
        builder.stream("in", reset="latest")
        with pytest.raises(TopologyError, match="reset"):
            builder.build()

    def test_a_topic_given_twice_is_one(self) -> None:
        builder = StreamsBuilder()
        builder.stream(["a", "b", "a"]).to("out")
        assert sources(builder.build()) == {"KSTREAM-SOURCE-0000000000": ("a", "b")}
        assert run(builder, ("a", "k", 1)) == [("k", 1)]

    def test_streams_of_one_pattern_agree_on_where_to_start(self) -> None:
        builder = StreamsBuilder()
        builder.stream(re.compile("in-.*"), reset="1h")
        builder.stream(re.compile("in-.*"))
        with pytest.raises(TopologyError, match=r"The same topics are read with different reset= at .*test_builder.py"):
            builder.build()

    @pytest.mark.parametrize(
        ("option", "one", "other"),
        [
            ("key", str, int),
            ("value", str, None),
            ("value", Json(list[int]), Json(list[str])),
            ("timestamp", _event_time, None),
            ("timestamp", _event_time, lambda record: record.value),
            ("watermark", monotonous(), None),
            ("watermark", bounded_disorder("1s"), bounded_disorder("2s")),
        ],
    )
    def test_streams_of_one_topic_are_read_in_one_way(self, option: str, one: Any, other: Any) -> None:
        """The first one's way would be everybody's, as it is in Kafka Streams."""
        builder = StreamsBuilder()
        builder.stream("in", **{option: one}).to("out")
        builder.stream("in", **{option: other}).to("out")
        with pytest.raises(
            TopologyError,
            match=rf"The same topics are read with different {option}= at .*test_builder.py:\d+.* and at .*test_builder.py:\d+",
        ):
            builder.build()

    def test_streams_of_one_topic_that_are_read_in_the_same_way_share_it(self) -> None:
        builder = StreamsBuilder()
        for _ in range(2):
            builder.stream(
                "in", key=str, value=Json(list[int]), timestamp=_event_time, watermark=bounded_disorder("1s"), reset="latest"
            ).to("out")
        assert list(sources(builder.build())) == ["KSTREAM-SOURCE-0000000000"]

    def test_two_streams_of_one_topic_can_be_merged(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").merge(builder.stream("in")).to("out")
        topology = builder.build()
        assert topology.nodes["KSTREAM-MERGE-0000000002"].parents == ("KSTREAM-SOURCE-0000000000",)
        assert run(builder, ("in", "a", 1)) == [("a", 1)]

    def test_a_builder_can_build_twice(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to("one")
        builder.stream("in").select_key(lambda key, value: value).group_by_key().count().to_stream().to("two")
        assert builder.build().describe() == builder.build().describe()

    def test_overlapping_topics_are_refused_with_both_lines(self) -> None:
        builder = StreamsBuilder()
        builder.stream(["a", "b"])
        builder.stream(["b", "c"])
        with pytest.raises(TopologyError, match=r"Topic 'b' is read at .*test_builder.py:\d+.* and at .*test_builder.py:\d+"):
            builder.build()

    def test_a_topic_is_a_stream_or_a_table_but_not_both(self) -> None:
        builder = StreamsBuilder()
        builder.table("in")
        builder.stream("in")
        with pytest.raises(TopologyError, match=r"Topic 'in' is read by both .*test_builder.py:\d+.* and .*test_builder.py:\d+"):
            builder.build()

    def test_several_topics_are_one_stream(self) -> None:
        builder = StreamsBuilder()
        builder.stream(["a", "b"]).to("out")
        assert run(builder, ("b", "k", 1), ("a", "k", 2)) == [("k", 1), ("k", 2)]

    def test_a_pattern_reads_all_topics_that_match_it_whole(self) -> None:
        builder = StreamsBuilder()
        builder.stream(re.compile("in-[0-9]")).to("out")
        assert run(builder, ("in-1", "k", 1), ("in-2", "k", 2)) == [("k", 1), ("k", 2)]
        with pytest.raises(TopologyError, match="reads no topic 'in-12'"):
            run(builder, ("in-12", "k", 1))

    def test_a_stream_of_nothing_is_refused(self) -> None:
        with pytest.raises(TopologyError, match=r"at least one topic \(.*test_builder.py"):
            StreamsBuilder().stream([])

    @pytest.mark.parametrize(
        ("reset", "kept"),
        [
            ("earliest", "earliest"),
            ("latest", "latest"),
            ("none", "none"),
            ("1h", 3_600_000),
            (timedelta(seconds=1), 1000),
            (None, None),
        ],
    )
    def test_reset_says_where_to_start(self, reset: Any, kept: Any) -> None:
        builder = StreamsBuilder()
        builder.stream("in", reset=reset)
        builder.table("facts", reset=reset)
        nodes = [node for node in builder.build().nodes.values() if isinstance(node, SourceNode)]
        assert [node.reset for node in nodes] == [kept, kept]

    @pytest.mark.parametrize("verb", ["stream", "table"])
    @pytest.mark.parametrize("reset", ["newest", object()])
    def test_any_other_reset_is_refused_with_the_users_line(self, verb: str, reset: Any) -> None:
        with pytest.raises(TopologyError, match=r"Invalid reset .*test_builder.py.*'earliest', 'latest', 'none' or a duration"):
            getattr(StreamsBuilder(), verb)("in", reset=reset)


class TestTimestamps:
    def test_an_extractor_gives_the_event_time(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", timestamp=lambda record: record.value["at"]).to("out")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe({"at": 42}, timestamp=1)
            assert driver.output("out").read().timestamp == 42

    def test_an_extractor_sees_the_record_its_place_and_the_highest_time_of_its_partition(self) -> None:
        seen: list[SourceRecord[Any, Any]] = []

        def extract(record: SourceRecord[Any, Any]) -> int:
            seen.append(record)
            return record.timestamp

        builder = StreamsBuilder()
        builder.stream("in", timestamp=extract).to("out")
        run(builder, ("in", "k", 1, 10), ("in", "k", 1, 5), ("in", "k", 1, 20), ("in", "k", 1, 0))
        assert [record.partition_time for record in seen] == [-1, 10, 10, 20]
        assert seen[1] == SourceRecord("k", 1, 5, HEADERS, "in", 0, 1, 10)

    def test_a_negative_time_skips_the_record_which_is_counted_and_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        builder = StreamsBuilder()
        builder.stream("in", timestamp=lambda record: record.value, name="events").to("out")
        builder.table("facts", timestamp=lambda record: record.value, name="facts").to_stream().to("changes")
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe_pairs([("a", -1), ("b", 5), ("c", -2)])
            driver.input("facts").pipe_pairs([("a", -1), ("b", 5)])
            assert driver.output("out").pairs() == driver.output("changes").pairs() == [("b", 5)]
            assert driver.dropped() == {("events", "invalid timestamp"): 2, ("facts-source", "invalid timestamp"): 1}
        events, facts = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
        assert events.startswith("events skips the record from in-0 at offset 0: its timestamp= function returned -1")
        assert "test_builder.py" in events
        assert facts.startswith("facts-source skips the record from facts-0 at offset 0")

    def test_a_negative_time_without_an_extractor_is_an_error(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", name="events").to("out")
        with (
            TopologyTestDriver(builder.build()) as driver,
            pytest.raises(
                ProcessingError,
                match=r"from in-0 at offset 0 has the invalid timestamp -1. Give events a timestamp= .*test_builder",
            ),
        ):
            driver.pipe_raw("in", None, b"1", -1, ())

    @pytest.mark.parametrize("verb", ["stream", "table"])
    def test_an_extractor_takes_one_argument(self, verb: str) -> None:
        with pytest.raises(TopologyError, match=r"timestamp= calls its function with \(record\).*test_builder.py"):
            getattr(StreamsBuilder(), verb)("in", timestamp=lambda record, partition_time: 0)


class Keeps(Processor[str, int, str, int]):
    def process(self, record: Record[str, int]) -> None:
        self.context.store("kept")[record.key] = record.value


class Looks(Processor[str, int, str, Any]):
    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.with_value(self.context.store("kept").get(record.key)))


class TestStores:
    def test_a_global_store_is_kept_by_its_own_processor_and_seen_by_all(self) -> None:
        builder = StreamsBuilder()
        builder.add_global_store(key_value_store("kept", value=int), "facts", Keeps, value=int)
        builder.stream("in").process(Looks).to("out")
        topology = builder.build()
        assert dict(topology.global_stores) == {"kept": "KSTREAM-SOURCE-0000000000"}
        assert run(builder, ("in", "a", 0), ("facts", "a", 7), ("in", "a", 0)) == [("a", None), ("a", 7)]

    def test_a_global_stores_supplier_takes_no_arguments(self) -> None:
        with pytest.raises(TopologyError, match=r"add_global_store calls its function with \(\)"):
            StreamsBuilder().add_global_store(key_value_store("kept"), "facts", lambda context: Keeps())  # type: ignore[misc, arg-type]

    def test_processors_share_a_declared_store(self) -> None:
        builder = StreamsBuilder()
        builder.add_state_store(key_value_store("kept", value=int))
        stream = builder.stream("in")
        stream.process(Keeps, stores=["kept"])
        stream.process(Looks, stores=["kept"]).to("out")
        assert run(builder, ("in", "a", 3)) == [("a", 3)]

    def test_a_store_that_was_not_declared_is_refused(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").process(Keeps, stores=["kept"])
        with pytest.raises(TopologyError, match="Store 'kept' is not declared"):
            builder.build()

    def test_two_stores_of_one_name_are_refused(self) -> None:
        builder = StreamsBuilder()
        builder.add_state_store(key_value_store("kept", value=int)).add_state_store(key_value_store("kept", value=str))
        with pytest.raises(TopologyError, match="Store 'kept' is declared twice"):
            builder.build()

    def test_the_same_store_may_be_declared_again(self) -> None:
        builder, kept = StreamsBuilder(), key_value_store("kept", value=int)
        builder.add_state_store(kept).add_state_store(kept)
        assert list(builder.build().stores) == ["kept"]

    def test_two_tables_do_not_share_a_store_by_accident(self) -> None:
        builder = StreamsBuilder()
        builder.stream("a").group_by_key().count(store="x")
        builder.stream("b").group_by_key().count(store="x")
        with pytest.raises(TopologyError, match="Store 'x' is declared twice"):
            builder.build()

    def test_options_that_a_table_cannot_have_are_refused(self) -> None:
        grouped = StreamsBuilder().stream("in").group_by_key()
        stores = Store("x", retention="1d"), Store("x", history="1d", ttl="1h"), Store("x", segment_interval="1h")
        for store in stores:
            with pytest.raises(TopologyError, match=r"takes no \w+= \(.*test_builder.py"):
                grouped.count(store=store)
        for windows in (tumbling("1m"), session("1m")):
            with pytest.raises(TopologyError, match=r"takes no ttl="):
                grouped.windowed_by(windows).count(store=Store("x", ttl="1h"))

    def test_what_is_made_by_two_builders_cannot_meet(self) -> None:
        here, there = StreamsBuilder(), StreamsBuilder()
        stream, other = here.stream("a"), there.stream("b")
        with pytest.raises(TopologyError, match="another StreamsBuilder"):
            stream.merge(other)
        with pytest.raises(TopologyError, match="another StreamsBuilder"):
            stream.join(other, lambda left, right: left, within=1)
        with pytest.raises(TopologyError, match="another StreamsBuilder"):
            here.table("c").join(there.table("d"), lambda left, right: left)
        with pytest.raises(TopologyError, match="another StreamsBuilder"):
            stream.group_by_key().cogroup(lambda k, v, a: a).cogroup(other.group_by_key(), lambda k, v, a: a)

    def test_many_diamonds_are_built_in_no_time(self) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in")
        for _ in range(60):
            left, right = stream.split(lambda key, value: value, otherwise)
            stream = left.merge(right)
        stream.to("out")
        assert len(builder.build().nodes) == 2 + 60 * 4

    def test_wrong_objects_are_refused_with_a_cure(self) -> None:
        builder = StreamsBuilder()
        stream, table = builder.stream("a"), builder.table("b")
        wrong: Any = table
        with pytest.raises(TopologyError, match=r"merge takes another stream, not KTable .*to_stream\(\)"):
            stream.merge(wrong)
        with pytest.raises(TopologyError, match=r"takes another table, not KStream .*to_table\(\)"):
            table.join(cast("Any", stream), lambda left, right: left)
        with pytest.raises(TopologyError, match="join takes a stream, a table or a global table, not str"):
            stream.join(cast("Any", "b"), lambda left, right: left, within=1)
        with pytest.raises(TopologyError, match=r"such as tumbling\('5m'\)"):
            stream.group_by_key().windowed_by(cast("Any", "5m"))
        with pytest.raises(TopologyError, match=r"suppress takes until_window_closes\(\)"):
            table.suppress(cast("Any", "5m"))
        with pytest.raises(TopologyError, match="only with a mapper"):
            cast("Any", table).to_stream(key=int)
        with pytest.raises(TopologyError, match="join takes with_key= only together with on="):
            cast("Any", table).join(table, lambda left, right: left, with_key=True)
        with pytest.raises(ValueError, match="close"):
            stream.group_by_key().windowed_by(tumbling("1m")).emit_strategy(cast("Any", "on_close"))

    def test_each_kind_of_store_has_its_function(self) -> None:
        specs = [
            key_value_store("a", ttl="1s", logging={"b": "2", "a": "1"}),
            timestamped_key_value_store("a", ttl="1s", logging=False),
            window_store("a", window_size="1s", retention="5s", retain_duplicates=True),
            timestamped_window_store("a", window_size="1s", retention="5s"),
            session_store("a", retention="5s"),
            versioned_store("a", history="5s", segment_interval="1s"),
            versioned_store("a", history="5s"),
            key_value_store("a"),
        ]
        assert [(spec.kind, spec.ttl_ms, spec.retention_ms, spec.window_size_ms) for spec in specs] == [
            (StoreKind.KEY_VALUE, 1000, None, None),
            (StoreKind.TIMESTAMPED, 1000, None, None),
            (StoreKind.WINDOW, None, 5000, 1000),
            (StoreKind.TIMESTAMPED_WINDOW, None, 5000, 1000),
            (StoreKind.SESSION, None, 5000, None),
            (StoreKind.VERSIONED, None, 5000, None),
            (StoreKind.VERSIONED, None, 5000, None),
            (StoreKind.KEY_VALUE, None, None, None),
        ]
        assert [spec.logged for spec in specs[:2]] == [True, False]
        assert specs[0].changelog_config == (("a", "1"), ("b", "2"))
        assert specs[2].retain_duplicates
        assert [spec.segment_interval_ms for spec in specs[5:7]] == [1000, None]


class TestGlobalTables:
    def test_are_not_versioned(self) -> None:
        with pytest.raises(TopologyError, match=r"A global table cannot be versioned \(.*test_builder.py"):
            StreamsBuilder().global_table("rates", store=Store(history="1h"))

    def test_have_a_store_to_query_by_its_name_or_by_a_generated_one(self) -> None:
        builder = StreamsBuilder()
        assert builder.global_table("rates", store="named").queryable_store_name == "named"
        assert builder.global_table("prices").queryable_store_name == "prices-STATE-STORE-0000000002"


class TestGlobalTablesOfFrames:
    def test_are_joined_like_others(self) -> None:
        builder = StreamsBuilder()
        rates = table_of_rates(builder)
        assert rates.queryable_store_name == "rates"
        paid = builder.stream(re.compile("in-.*"), value=float)
        paid.join(rates, lambda amount, rate: amount * rate, on=lambda currency, amount: currency).to("out", value=float)
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("rates-global").pipe(2.0, key="CHF")
            driver.input("in-1").pipe(10.0, key="CHF")
            driver.input("in-1").pipe(10.0, key="EUR")
            assert driver.output("out").values() == [20.0]
            driver.input("rates-global").pipe(None, key="CHF")
            driver.input("in-1").pipe(10.0, key="CHF")
            assert driver.output("out").is_empty

    def test_match_no_pattern(self) -> None:
        builder = StreamsBuilder()
        table_of_rates(builder)
        builder.stream(re.compile(".*"))
        assert len(builder.build().global_stores) == 1

    def test_cannot_be_read_by_their_topic(self) -> None:
        builder = StreamsBuilder()
        table_of_rates(builder)
        builder.stream("rates-global")
        with pytest.raises(TopologyError, match="Topic 'rates-global' is read by both"):
            builder.build()

    @pytest.mark.parametrize("refresh", [0, timedelta(seconds=-1)])
    def test_are_read_again_at_an_interval(self, refresh: Any) -> None:
        with pytest.raises(TopologyError, match=r"refresh= must be longer than 0 \(.*test_builder.py.*Omit it"):
            table_of_rates(StreamsBuilder(), refresh)

    def test_check_their_functions(self) -> None:
        frame: Any = 5
        with pytest.raises(TopologyError, match="global_table_from"):
            StreamsBuilder().global_table_from(frame, lambda row: (row, row), store="rates", key=str, value=float)


def test_node_names_may_be_given_only_once() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="same").to("out", name="same")
    with pytest.raises(TopologyError, match=r"Node 'same' already exists \(.*test_builder.py"):
        builder.build()


def test_a_given_name_still_moves_the_counter() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="read").filter(lambda key, value: True, name="keep").peek(lambda key, value: None).to("out")
    builder.table("facts", name="facts", store="kept").to_stream(name="changes").to("changes", name="write")
    assert list(builder.build().nodes) == [
        "read",
        "keep",
        "KSTREAM-PEEK-0000000002",
        "KSTREAM-SINK-0000000003",
        "facts-source",
        "facts",
        "changes",
        "write",
    ]


def test_a_processors_given_name_does_not_move_the_counter() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Looks, name="look").process_values(cast("Any", Looks), name="again").to("out")
    assert list(builder.build().nodes)[-1] == "KSTREAM-SINK-0000000001"
