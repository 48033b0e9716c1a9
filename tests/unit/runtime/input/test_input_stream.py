"""The input stream of an application, restarted when partitions are added or records are lost."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import BrokerError, ProcessingError, TopicError
from penstock.history.past import Lost
from penstock.history.progress import Progress
from penstock.kafka.topics import Topic
from penstock.observation import Recorder
from penstock.records import Partition
from penstock.runtime.input.input_stream import InputStream
from penstock.runtime.input.topic_watch import Growth

A0, A1 = ("a", 0), ("a", 1)


class Stage:
    """Epochs, a watch and streams in one; records their calls in order."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        self.progress = Progress(4, {A0: 10}, {})
        self.committing: Progress | None = None
        """The progress that an interruption waits for."""
        self.grown: list[Growth] = []
        self.lost: tuple[Lost, ...] = ()
        self.look_failure: Exception | None = None
        self.recorder = Recorder()

    def interrupt(self) -> None:
        self.did.append("interrupt")
        self.progress = self.committing or self.progress

    def continue_from(self, begins: Mapping[Partition, int], *more: Any) -> Mapping[Partition, int]:
        self.did.append(("continue", dict(begins), *more))
        return {**self.progress.offsets, **begins}

    def growth(self) -> Growth | None:
        return self.grown.pop() if self.grown else None

    def look(self, patience: int) -> None:
        assert patience == 1
        if self.look_failure is not None:
            raise self.look_failure

    def open(self, offsets: Mapping[Partition, int]) -> Any:
        number = sum(isinstance(entry, tuple) and entry[0] == "open" for entry in self.did)
        self.did.append(("open", dict(offsets)))
        return SimpleNamespace(
            start=lambda: self.did.append(f"start {number}"),
            stop=lambda: self.did.append(f"stop {number}"),
            wait=lambda timeout_s: timeout_s > 1,
        )

    def reading(self, may_skip: bool = False) -> InputStream:
        stage: Any = self
        return InputStream(self.open, stage, stage, self.find_lost, self.on_growth, may_skip, self.recorder)

    def find_lost(self, offsets: Mapping[Partition, int]) -> tuple[Lost, ...]:
        return tuple(lost for lost in self.lost if offsets[lost.topic, lost.partition] == lost.offset)

    def on_growth(self, growth: Growth) -> None:
        self.did.append(sorted(growth.topics))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_it_begins_at_the_progress(stage: Stage) -> None:
    reading = stage.reading()
    reading.start()
    reading.follow()
    assert [reading.wait(0), reading.wait(2)] == [False, True]
    reading.stop()
    assert stage.did == [("open", {A0: 10}), "start 0", "stop 0"]


def test_a_stream_is_replaced_between_epochs_when_partitions_are_added(stage: Stage) -> None:
    reading = stage.reading()
    stage.grown = [Growth({"a": Topic("a", "id", 2, {})}, {A1: 3})]
    reading.follow()
    assert stage.did[1:] == [
        ["a"],
        "interrupt",
        "stop 0",
        ("continue", {A1: 3}, {"a": 2}, {"a": "id"}),
        ("open", {A0: 10, A1: 3}),
        "start 1",
    ]
    reading.stop()
    assert stage.did[-1] == "stop 1"


class TestRecovery:
    LOST = Lost("a", 0, 10, 25)

    def test_a_penstock_error_is_raised_unchanged(self, stage: Stage) -> None:
        stage.lost, stage.look_failure = (self.LOST,), TopicError("gone")
        with pytest.raises(ProcessingError, match="bad record"):
            stage.reading(may_skip=True).recover(ProcessingError("bad record"))

    def test_an_error_unrelated_to_the_input_is_raised_unchanged(self, stage: Stage) -> None:
        with pytest.raises(RuntimeError, match="out of memory"):
            stage.reading(may_skip=True).recover(RuntimeError("out of memory"))

    def test_a_deleted_topic_replaces_sparks_error(self, stage: Stage) -> None:
        stage.look_failure = TopicError("Topic 'a' was deleted")
        with pytest.raises(TopicError, match="Topic 'a' was deleted"):
            stage.reading().recover(RuntimeError("UnknownTopicOrPartition"))

    def test_a_deleted_topic_replaces_an_error_about_its_offsets(self, stage: Stage) -> None:
        stage.look_failure = TopicError("Topic 'a' was deleted")
        with pytest.raises(TopicError, match="Topic 'a' was deleted"):
            stage.reading().recover(TopicError("Cannot read the offsets of a-0"))

    def test_unreachable_brokers_do_not_hide_the_error(self, stage: Stage) -> None:
        stage.look_failure = BrokerError("out of reach")
        with pytest.raises(RuntimeError, match="out of memory"):
            stage.reading().recover(RuntimeError("out of memory"))

    def test_lost_input_is_named_with_its_cure(self, stage: Stage) -> None:
        stage.lost = (self.LOST,)
        with pytest.raises(TopicError, match=r"a-0: records from offset 10 to 25 were deleted .*on_lost_input"):
            stage.reading().recover(RuntimeError("KAFKA_DATA_LOSS"))

    def test_lost_input_is_skipped_counted_and_logged_if_allowed(self, stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
        stage.lost = (self.LOST,)
        with caplog.at_level(logging.WARNING):
            stage.reading(may_skip=True).recover(RuntimeError("KAFKA_DATA_LOSS"))
        assert stage.did[1:] == ["interrupt", "stop 0", ("continue", {A0: 25}), ("open", {A0: 25}), "start 1"]
        assert stage.recorder.lost == {A0: 15}
        assert "a-0: records from offset 10 to 25 were deleted before they were read; continuing at offset 25" in caplog.text

    def test_what_is_being_committed_is_not_lost(self, stage: Stage) -> None:
        stage.committing, stage.lost = Progress(5, {A0: 18}, {}), (Lost("a", 0, 18, 25),)
        stage.reading(may_skip=True).recover(RuntimeError("KAFKA_DATA_LOSS"))
        assert stage.recorder.lost == {A0: 7}
