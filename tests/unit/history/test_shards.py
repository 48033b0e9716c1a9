"""How many shards an application has, with topics from a test."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from penstock import StreamsBuilder, Topology
from penstock.config import Config
from penstock.errors import ConfigError, TopicError, TopologyError
from penstock.handlers import ErrorHandlers
from penstock.history.shards import looking, settled
from penstock.history.truth import Truth, program_of
from tests.unit.history.test_truth import Topics, reading

LANES = "app-lanes-changelog"
"""The topic that exists from the first start on."""


def config_of(topology: Topology, topics: Topics, lanes: int | None = 2, **settings: Any) -> Config:
    """The settled settings."""
    config, asked = Config(kafka={"bootstrap.servers": "nowhere:1"}, lanes=lanes, **settings), cast("Any", topics)
    return settled(Truth(topology, program_of("app", topology, ErrorHandlers(), config, "now"), config, asked), config, asked)


def look(topic: str, topics: Topics, lanes: int | None = None) -> Truth:
    """What `plan` and `doctor` ask."""
    config = Config(kafka={"bootstrap.servers": "nowhere:1"}, lanes=lanes)
    return looking("app", reading(topic), ErrorHandlers(), config, cast("Any", topics))


def test_a_new_application_has_as_many_as_its_widest_source_topic_has_partitions() -> None:
    topics = Topics(narrow=1, wide=5, unread=9)
    assert config_of(reading("narrow", "wide"), topics).shards == 5
    assert config_of(reading("narrow"), topics, lanes=None).shards == 1


def test_topics_of_a_pattern_count_as_far_as_they_exist() -> None:
    assert config_of(reading(re.compile("in-.*")), Topics(**{"in-1": 3, "in-2": 4})).shards == 4


def test_only_topics_that_epochs_read_count() -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", value=str)
    orders = builder.stream("orders", value=str).join(rates, lambda value, rate: rate, on=lambda key, value: key)
    orders.repartition(partitions=7).group_by_key().count(store="counts").to_stream().to("out")
    topics = Topics(rates=9, orders=2, out=8, **{"app-counts-changelog": 6})
    assert config_of(builder.build(), topics).shards == 2


@pytest.mark.parametrize(("given", "shards"), [(None, 4), (5, 5)])
def test_the_number_of_the_first_start_is_kept_unless_one_is_set(given: int | None, shards: int) -> None:
    topics = Topics(**{"in": 1, LANES: 4})
    for partitions in (1, 16):
        topics.partitions["in"] = partitions
        assert config_of(reading("in"), topics, shards=given).shards == shards


def test_topics_that_the_start_creates_count_with_the_partitions_that_they_get() -> None:
    topology, settings = reading("here", "missing"), {"create_topics": True, "topic_partitions": 3}
    assert config_of(topology, Topics(here=1), **settings).shards == 3
    assert config_of(topology, Topics(here=6), **settings).shards == 6


def test_missing_topics_leave_it_open() -> None:
    with pytest.raises(TopicError, match="Topics do not exist: missing"):
        config_of(reading("here", "missing"), Topics(here=1))


def test_without_input_there_is_none() -> None:
    with pytest.raises(TopologyError, match="reads no topic"):
        config_of(reading(re.compile("in-.*")), Topics("other"), create_topics=True)


def test_more_lanes_than_a_new_application_has_shards_do_not_run(caplog: pytest.LogCaptureFixture) -> None:
    """As threads of Kafka Streams that have no task, but said."""
    found = config_of(reading("narrow", "wide"), Topics(narrow=1, wide=3), lanes=4)
    assert (found.lanes, found.shards) == (3, 3)
    told = "lanes = 4, but 3 of them run: the application has as many shards, as its widest source topic, wide, has partitions."
    assert told in caplog.text
    assert config_of(reading("in"), Topics(), lanes=4, create_topics=True, topic_partitions=3).lanes == 3
    caplog.clear()
    assert config_of(reading("in"), Topics(**{"in": 1}), lanes=4, shards=4).lanes == 4
    assert config_of(reading("in"), Topics(**{"in": 4}), lanes=4).lanes == 4
    assert not caplog.text


def test_more_lanes_than_shards_of_the_first_start_do_not_run(caplog: pytest.LogCaptureFixture) -> None:
    found = config_of(reading("in"), Topics("in", LANES), lanes=3)
    assert (found.lanes, found.shards) == (2, 2)
    assert "has as many shards, since its first start. For more lanes, set shards before the first start" in caplog.text


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"3 lanes cannot share 2 shards.*fixed at the first start"):
        config_of(reading("in"), Topics("in"), lanes=3, shards=2)


@pytest.mark.parametrize(("cores", "lanes"), [(16, 2), (1, 1)])
def test_without_a_setting_lanes_are_at_most_as_many(cores: int, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    truth = look("in", Topics("in"))
    assert (truth.program.lanes, truth.program.shards) == (lanes, 2)


def test_a_look_before_topics_exist_refuses_nothing_of_its_own() -> None:
    assert look("missing", Topics(), lanes=64).program.lanes == 64
