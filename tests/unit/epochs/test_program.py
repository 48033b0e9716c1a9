"""A program: what tasks need to know about a topology, with codes that are the same in all tasks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import cloudpickle
import pytest

from penstock import Processor, Record, Store, StreamsBuilder, bounded_disorder, key_value_store, tumbling
from penstock.epochs.program import Epoch, lanes_topic
from penstock.epochs.shards import shard_of
from penstock.topology.bindings import changelog_topic
from tests.unit.epochs.application import SHARDS, every_kind_of_store, program_of


def test_an_unpickled_program_is_the_same() -> None:
    program = program_of(every_kind_of_store())
    other = cloudpickle.loads(cloudpickle.dumps(program))
    for fact in ("sources", "topics", "topic_codes", "depths", "exchange_source", "logged_stores", "routes_by_value"):
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
    assert [program.depths[1 - code], program.depths[code]] == [0, 1]


def test_a_stage_without_state_runs_anywhere() -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", value=str)
    words.map_values(str.upper).select_key(lambda key, value: value).group_by_key().count(store="counts")
    program = program_of(builder.build())
    assert [program.needs_lanes(stage) for stage in range(2)] == [False, True]


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


def test_a_stage_with_a_processor_needs_lanes_because_of_its_clock() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).process(Idle)
    assert program_of(builder.build()).needs_lanes(0)


@pytest.mark.parametrize(
    ("key", "is_read"),
    [(str, False), (bytes, False), (int, False), (float, False), (dict, True), (list[str], True), (UUID, True)],
)
def test_keys_are_decoded_for_routing_only_if_they_have_several_encodings(key: Any, is_read: bool) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=key, value=str).group_by_key().count(store="counts")
    assert program_of(builder.build()).routes_by_value is is_read


def test_keys_after_an_exchange_need_not_be_decoded() -> None:
    builder = StreamsBuilder()
    by_value = builder.stream("in", value=dict).select_key(lambda _, value: value, key=dict).repartition(key=dict, value=dict)
    by_value.group_by_key().count(store="counts")
    assert not program_of(builder.build()).routes_by_value


def test_timestamps_are_extracted_only_where_a_source_says_so() -> None:
    assert not program_of(every_kind_of_store()).extracts_timestamps
    builder = StreamsBuilder()
    builder.stream("in", value=str, timestamp=lambda record: 0).to("out")
    assert program_of(builder.build()).extracts_timestamps


def test_a_key_of_a_store_is_found_in_the_shard_of_its_records_key() -> None:
    program = program_of(every_kind_of_store())
    for store in ("words", "windows", "sessions"):
        find = program.shard_finder(store)
        assert [find(key) for key in (b"a", b"b", b"c")] == [shard_of(key, SHARDS) for key in (b"a", b"b", b"c")]


def test_a_processor_may_store_arbitrary_keys_but_an_operator_does_not() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("own", key=bytes, value=bytes))
    stream = builder.stream("in", value=str)
    stream.process(Idle, stores=["own"])
    stream.group_by_key().count(store="counts")
    program = program_of(builder.build())
    assert [program.keeps_own_keys(store) for store in ("own", "counts")] == [True, False]


def test_only_what_may_become_due_without_a_record_is_waited_for() -> None:
    builder = StreamsBuilder()
    windows = tumbling("1s", grace="0s")
    builder.stream("in", value=str).group_by_key().windowed_by(windows).count(store="windows")
    assert not program_of(builder.build()).may_wait(0)
    builder = StreamsBuilder()
    told = builder.stream("in", value=str, watermark=bounded_disorder(0))
    told.group_by_key().windowed_by(windows).count(store="windows")
    assert program_of(builder.build()).may_wait(0)
    builder = StreamsBuilder()
    builder.stream("in", value=str).process(Idle)
    assert program_of(builder.build()).may_wait(0)


def test_sources_and_origins_are_known_to_an_epoch_by_their_codes() -> None:
    program = program_of(every_kind_of_store())
    catalogue = Epoch(0, -1, 0, (("in", 0), ("in", 1))).catalogue(program)
    assert (catalogue.sources, catalogue.origins) == (program.sources, (("in", 0), ("in", 1)))


@pytest.mark.parametrize(("committed", "expected"), [(None, 6), (6, 6), (4, 4), (-1, -1)])
def test_the_epoch_before_is_committed_unless_another_one_is_named(committed: int | None, expected: int) -> None:
    assert Epoch(7, 6, 0, committed=committed).last_committed == expected
