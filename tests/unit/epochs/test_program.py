"""A program: what tasks have to know about a topology, in codes that mean the same to all of them."""

from __future__ import annotations

from typing import Any

import cloudpickle

from penstock import Processor, Record, Store, StreamsBuilder, key_value_store
from penstock.epochs.program import Epoch, changelog_topic, lanes_topic
from penstock.epochs.shards import lane_of, shard_of, shards_of
from tests.unit.epochs.application import every_kind_of_store, program_of


def test_it_says_the_same_wherever_it_was_unpacked() -> None:
    program = program_of(every_kind_of_store())
    other = cloudpickle.loads(cloudpickle.dumps(program))
    for fact in ("sources", "topics", "topic_codes", "depth_of", "exchange_source", "logged_stores", "attaches_stream_time"):
        assert getattr(other, fact) == getattr(program, fact)


def test_topics_are_the_lanes_own_the_changelogs_and_the_sinks_once_each() -> None:
    builder = StreamsBuilder()
    records = builder.stream("in", value=str)
    records.to("out")
    records.filter(lambda key, value: True).to("out")
    records.to(lambda key, value, context: "anywhere")
    records.group_by_key().count(store=Store("quiet", logging=False))
    records.select_key(lambda key, value: value).group_by_key().count(store="counts").to_stream().to("counted", value=int)
    program = program_of(builder.build())
    assert program.topics == (lanes_topic("app"), changelog_topic("app", "counts"), "out", "counted")
    assert program.topic_codes == {topic: code for code, topic in enumerate(program.topics)}


def test_changelogs_have_kafka_streams_names() -> None:
    assert (changelog_topic("app", "counts"), lanes_topic("app")) == ("app-counts-changelog", "app-lanes-changelog")


def test_an_exchange_is_read_by_the_source_behind_it_in_a_later_stage() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).select_key(lambda key, value: value).repartition(name="by-value").to("out")
    program = program_of(builder.build())
    [(topic, code)] = program.exchange_source.items()
    assert topic == "by-value-repartition"
    assert program.depth_of == {1 - code: 0, code: 1}


def test_a_stage_without_state_runs_anywhere() -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", value=str)
    words.map_values(str.upper).select_key(lambda key, value: value).group_by_key().count(store="counts")
    program = program_of(builder.build())
    assert [program.needs_lanes(stage) for stage in range(2)] == [False, True]


def test_stores_with_a_ttl_follow_stream_time_too() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by_key().count(store=Store("counts", ttl="1h"))
    assert program_of(builder.build()).attaches_stream_time


def test_tables_that_are_joined_with_each_other_have_no_caches() -> None:
    builder = StreamsBuilder()
    left = builder.table("left", value=str, store="left")
    right = builder.table("right", value=str, store="right").map_values(str.upper)
    left.join(right, lambda one, other: one + other, store="both")
    builder.table("alone", value=str, store="alone")
    specs = program_of(builder.build()).specs
    assert {name: spec.cached for name, spec in specs.items()} == {"left": False, "right": False, "both": True, "alone": True}


class Idle(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        """Nothing."""


def test_a_processor_keeps_its_stage_on_lanes_because_it_may_keep_time() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).process(Idle)
    assert program_of(builder.build()).needs_lanes(0)


def test_stream_time_is_attached_only_where_somebody_asks_for_it() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by_key().count(store="counts")
    assert not program_of(builder.build()).attaches_stream_time
    assert program_of(every_kind_of_store()).attaches_stream_time


def test_timestamps_are_extracted_only_where_a_source_says_so() -> None:
    assert not program_of(every_kind_of_store()).extracts_timestamps
    builder = StreamsBuilder()
    builder.stream("in", value=str, timestamp=lambda record: 0).to("out")
    assert program_of(builder.build()).extracts_timestamps


def test_a_changelog_row_is_kept_in_the_shard_of_its_records_key() -> None:
    program = program_of(every_kind_of_store())
    keys = [b"a", b"b", b"c", b"d", b"e", b"f"]
    for lane in range(2):
        own = [key for key in keys if lane_of(shard_of(key, 8), 8, 2) == lane]
        assert own
        rows = {"words": own, "windows": [key + bytes(12) for key in own], "sessions": [key + bytes(16) for key in own]}
        for store, changed in rows.items():
            assert program.shards_of_rows(store, lane)(changed) == [shard_of(key, 8) for key in own]


def test_a_row_under_a_key_of_the_processors_own_making_stays_with_the_lane() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("own", key=bytes, value=bytes))
    builder.stream("in", value=str).process(Idle, stores=["own"])
    program = program_of(builder.build(), lanes=4)
    keys = [b"key-%d" % number for number in range(40)]
    for lane in range(4):
        own = shards_of(lane, 8, 4)
        for key, shard in zip(keys, program.shards_of_rows("own", lane)(keys), strict=True):
            assert shard == (shard_of(key, 8) if shard_of(key, 8) in own else own.start)


def test_sources_and_origins_are_known_to_an_epoch_by_their_codes() -> None:
    program = program_of(every_kind_of_store())
    catalogue = Epoch(0, -1, 0, (("in", 0), ("in", 1))).catalogue(program)
    assert (catalogue.sources, catalogue.origins) == (program.sources, (("in", 0), ("in", 1)))
