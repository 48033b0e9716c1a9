"""What a start reads from Kafka, with topics and offsets from a test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import Store, StreamsBuilder, Topology
from penstock.config import Config
from penstock.errors import TopicError, TopologyError
from penstock.handlers import ErrorHandlers
from penstock.history.past import Lost
from penstock.history.truth import Position, Truth, program_of
from penstock.kafka.commit import CommitMetadata
from penstock.kafka.topics import Topic
from penstock.records import Partition
from penstock.topology.plan import TopologyFacts

SEVEN = CommitMetadata(epoch=7, incarnation="a1", fingerprint="f", lanes=2, shards=8, high_time=99, topic_id=None, partitions=2)


class Topics:
    """Topics of two partitions each, unless others are given; with offsets from 20 to 200."""

    def __init__(self, *names: str, **partitions: int) -> None:
        self._names = {*names, *partitions}
        self.partitions = partitions

    def names(self) -> set[str]:
        return self._names

    def seen(self, names: Iterable[str]) -> dict[str, Topic]:
        return {name: Topic(name, f"id-{name}", self.partitions.get(name, 2), {}) for name in names if name in self._names}

    describe = seen

    def begin_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 20)

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 200)


class Asked(Truth):
    """One whose group has committed what a test says."""

    def __init__(self, topology: Topology, topics: Topics, **settings: Any) -> None:
        config = Config(kafka={"bootstrap.servers": "nowhere:1"}, lanes=2, **settings)
        program = program_of("app", topology, ErrorHandlers(), config, "now")
        super().__init__(topology, program, config, topics)  # type: ignore[arg-type]
        self.found: dict[Partition, tuple[int, str]] = {}

    def offsets(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, str] | None]:
        return {place: self.found.get(place) for place in partitions}

    def at(self, *topics: str) -> Position:
        """The position, if these topics are read."""
        places = [(topic, number) for topic in topics for number in range(2)]
        return self.position(places, {topic: f"id-{topic}" for topic in topics})


def test_tasks_find_copies_from_any_working_directory() -> None:
    def copies(given: str | None) -> str:
        config = Config(kafka={"bootstrap.servers": "nowhere:1"}, lanes=2, state_copies=given)
        return program_of("app", reading("in"), ErrorHandlers(), config, "now").copies

    assert [copies(None), copies("s3://bucket/copies")] == ["", "s3://bucket/copies"]
    assert copies("copies") == str(Path("copies").absolute())


def reading(*topics: Any, reset: str | None = None) -> Topology:
    builder = StreamsBuilder()
    for topic in topics:
        builder.stream(topic, value=str, reset=reset).group_by_key().count()
    return builder.build()


def facts(*sources: str) -> TopologyFacts:
    return TopologyFacts("f", {}, list(sources), incarnation="a1")


class TestTopics:
    def test_a_store_cannot_have_the_lanes_own_topic(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str).group_by_key().count(store="lanes")
        with pytest.raises(TopologyError, match=r"cannot be named 'lanes': its changelog 'app-lanes-changelog' .*another name"):
            _ = Asked(builder.build(), Topics("in")).internal_topics

    def test_a_store_without_a_changelog_may_be_named_lanes(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str).group_by_key().count(store=Store("lanes", logging=False))
        assert [topic.name for topic in Asked(builder.build(), Topics("in")).internal_topics] == ["app-lanes-changelog"]

    def test_its_own_topics_match_no_pattern(self) -> None:
        others = {"in", "other-counts-changelog", "other-backfills", "other-rates-global", "global"}
        topics = Topics(*others, "app-counts-changelog", "app-backfills", "app-rates-global")
        assert set(Asked(reading(re.compile(".*")), topics).read_topics) == others

    def test_rows_of_a_global_table_are_in_a_topic_of_its_own(self) -> None:
        builder = StreamsBuilder()
        rates = builder.global_table_from(
            lambda spark: None, lambda row: (row["of"], row["rate"]), store="rates", key=str, value=float
        )
        builder.stream(re.compile(".*"), value=str).join(rates, lambda value, rate: rate, on=lambda key, value: key).to("out")
        truth = Asked(builder.build(), Topics("in", "out", "app-rates-global"))
        assert truth.table_topics == {"app-rates-global"}
        assert set(truth.read_topics) == {"in", "out", "app-rates-global"}
        assert set(truth.source_of(truth.read_topics)) == {"in", "out"}
        table = truth.internal_topics[-1]
        assert (table.name, table.partitions, table.config["cleanup.policy"]) == ("app-rates-global", 1, "compact")

    def test_a_topic_of_its_own_need_not_exist(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str)
        builder.global_table_from(lambda spark: None, lambda row: (row, row), store="rates", key=str, value=float)
        truth = Asked(builder.build(), Topics("in"))
        assert truth.missing_topics() == []
        assert set(truth.existing_topics()[0]) == {"in"}

    def test_new_topics_are_matched_later(self) -> None:
        topics = Topics("in-1")
        truth = Asked(reading(re.compile("in-.*"), "fixed"), topics)
        assert set(truth.read_topics) == {"in-1", "fixed"}
        topics.names().add("in-2")
        assert set(truth.read_topics) == {"in-1", "fixed"}
        assert set(truth.codes(truth.matched_topics())) == {"in-1", "in-2", "fixed"}


class TestPosition:
    def test_offsets_of_topics_that_are_no_longer_read_are_requested_too(self) -> None:
        truth = Asked(reading("renamed", reset="latest"), Topics("renamed", "old-1", "other"), shards=8)
        truth.last_facts = facts("old-.*")
        truth.found = {("old-1", number): (100, SEVEN.encode()) for number in range(2)}
        position = truth.at("renamed")
        assert position.before is not None
        assert position.start.epoch == 7
        assert position.start.offsets == {("renamed", 0): 200, ("renamed", 1): 200}

    def test_new_partitions_start_at_their_beginning_whatever_the_reset_position(self) -> None:
        truth = Asked(reading("in", reset="latest"), Topics("in"), shards=8)
        truth.last_facts = facts("in")
        truth.found = {("in", 0): (100, replace(SEVEN, partitions=1).encode())}
        assert truth.at("in").start.offsets == {("in", 0): 100, ("in", 1): 20}

    def test_lost_input_aborts_the_start(self) -> None:
        truth = Asked(reading("in"), Topics("in"), shards=8)
        truth.last_facts = None
        truth.found = {("in", 0): (5, SEVEN.encode()), ("in", 1): (100, SEVEN.encode())}
        with pytest.raises(TopicError, match="in-0: records from offset 5 to 20 were deleted before they were read"):
            truth.at("in")

    def test_lost_input_is_skipped_if_the_setting_says_so(self) -> None:
        truth = Asked(reading("in"), Topics("in"), shards=8, on_lost_input="continue")
        truth.last_facts = None
        truth.found = {("in", 0): (5, SEVEN.encode()), ("in", 1): (300, SEVEN.encode())}
        position = truth.at("in")
        assert position.lost == (Lost("in", 0, 5, 20), Lost("in", 1, 300, 200))
        assert position.start.offsets == {("in", 0): 20, ("in", 1): 200}
