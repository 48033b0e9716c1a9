"""Changes of source topics while an application runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import pytest

from penstock.errors import BrokerError, TopicError
from penstock.kafka.topics import Topic
from penstock.records import Partition
from penstock.runtime.input import topic_watch
from penstock.runtime.input.topic_watch import Growth, TopicWatch, new_partitions

PATIENCE_S = 20


def topic(name: str, partitions: int, topic_id: str | None = None) -> Topic:
    return Topic(name, topic_id or f"id-{name}", partitions, {})


def of(*topics: Topic) -> dict[str, Topic]:
    return {found.name: found for found in topics}


class Brokers:
    """The topics that exist, set by a test."""

    def __init__(self, *topics: Topic) -> None:
        self.topics = of(*topics)
        self.failure: Exception | None = None
        self.begin_failure: Exception | None = None
        self.looked = threading.Event()

    def look(self) -> Mapping[str, Topic]:
        self.looked.set()
        if self.failure is not None:
            raise self.failure
        return self.topics

    def begins(self, partitions: list[Partition]) -> dict[Partition, int]:
        if self.begin_failure is not None:
            raise self.begin_failure
        return {place: 10 * place[1] for place in partitions}

    def watch(self, may_grow: bool = True) -> TopicWatch:
        return TopicWatch(self.topics, self.look, self.begins, may_grow)


class TestNewPartitions:
    def test_new_partitions_of_a_known_topic_and_of_new_topics(self) -> None:
        known = of(topic("in", 2), topic("other", 1))
        assert new_partitions(known, of(topic("in", 4), topic("other", 1), topic("new", 1))) == [("in", 2), ("in", 3), ("new", 0)]

    def test_a_broker_that_knows_fewer_is_only_behind(self) -> None:
        assert new_partitions(of(topic("in", 2)), of(topic("in", 1))) == []

    def test_a_topic_of_another_id_is_another_topic(self) -> None:
        with pytest.raises(TopicError, match=r"'in' was deleted and created again while .*reset --keep-state --to-earliest in"):
            new_partitions(of(topic("in", 2)), of(topic("in", 4, "another")))


class TestWatch:
    def test_growth_is_reported_once_with_its_begin_offsets(self) -> None:
        brokers = Brokers(topic("in", 2))
        watch = brokers.watch()
        watch.look()
        assert watch.growth() is None
        brokers.topics = of(topic("in", 3), topic("new", 1))
        watch.look()
        watch.look()
        assert watch.growth() == Growth(of(topic("in", 3), topic("new", 1)), {("in", 2): 20, ("new", 0): 0})
        assert watch.growth() is None

    def test_partitions_that_cannot_be_read_yet_are_reported_later(self) -> None:
        brokers = Brokers(topic("in", 1))
        watch = brokers.watch()
        brokers.topics, brokers.begin_failure = of(topic("in", 2)), TopicError("unknown partition")
        watch.look()
        assert watch.growth() is None
        brokers.begin_failure = None
        watch.look()
        assert watch.growth() == Growth(of(topic("in", 2)), {("in", 1): 10})

    def test_a_bounded_run_reads_no_new_partitions(self) -> None:
        brokers = Brokers(topic("in", 1))
        watch = brokers.watch(may_grow=False)
        brokers.topics = of(topic("in", 2))
        watch.look()
        assert watch.growth() is None
        brokers.topics = of(topic("in", 2, "another"))
        with pytest.raises(TopicError, match="created again"):
            watch.look()

    def test_a_topic_counts_as_deleted_when_it_was_missing_twice(self) -> None:
        brokers = Brokers(topic("in", 1), topic("other", 1))
        watch = brokers.watch()
        everything, brokers.topics = brokers.topics, of(topic("other", 1))
        watch.look()
        brokers.topics = everything
        watch.look()
        brokers.topics = of(topic("other", 1))
        watch.look()
        with pytest.raises(TopicError, match="Topic 'in' was deleted while the application was running"):
            watch.look()

    def test_it_counts_as_deleted_at_once_with_a_patience_of_one(self) -> None:
        brokers = Brokers(topic("in", 1))
        watch = brokers.watch()
        brokers.topics = {}
        with pytest.raises(TopicError, match="Topic 'in' was deleted"):
            watch.look(patience=1)


class TestThread:
    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(topic_watch, "TOPICS_EVERY_S", 0.001)

    def test_unreachable_brokers_change_nothing_and_a_recreated_topic_ends_the_watch(self) -> None:
        brokers = Brokers(topic("in", 1))
        brokers.failure = BrokerError("out of reach")
        watch = brokers.watch()
        watch.start("watch")
        assert brokers.looked.wait(PATIENCE_S)
        assert watch.growth() is None
        brokers.topics, brokers.failure = of(topic("in", 1, "another")), None
        failure: TopicError | None = None
        deadline = time.monotonic() + PATIENCE_S
        while failure is None and time.monotonic() < deadline:
            try:
                watch.growth()
            except TopicError as error:
                failure = error
        assert "created again" in str(failure)

    def test_it_stops_looking_when_it_is_stopped(self) -> None:
        brokers = Brokers(topic("in", 1))
        watch = brokers.watch()
        watch.stop()
        watch.start("watch")
        assert not brokers.looked.wait(0.05)
