"""Offsets that are set by hand: where they point, and that a start accepts them like those of a commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from penstock.config import Config
from penstock.errors import ConfigError, TopicError
from penstock.history.past import past
from penstock.history.rewind import Goal, Move, To, base_of_kept_state, base_of_no_state, find_moves, new_offsets
from penstock.kafka.commit import CommitMetadata, SourceOffset
from penstock.kafka.topics import Topic
from penstock.records import Partition
from penstock.topology.plan import TopologyFacts

SEVEN = CommitMetadata(
    epoch=7, incarnation="a1", fingerprint="f", lanes=2, shards=8, high_time=99, topic_id="id-in", watermark=90, partitions=2
)
OFFSETS = {("in", 0): (100, SEVEN.encode()), ("in", 1): (101, SEVEN.encode())}
CONFIG = Config(kafka={"bootstrap.servers": "nowhere:1"}, shards=8)
IN, NEW = Topic("in", "id-in", 2, {}), Topic("new", "id-new", 1, {})


class Topics:
    """Topics from offset 5 to 500, in which a record's time is its offset."""

    def __init__(self, *topics: Topic) -> None:
        self._topics = {topic.name: topic for topic in topics}

    def seen(self, names: Iterable[str]) -> dict[str, Topic]:
        return {name: self._topics[name] for name in names if name in self._topics}

    def begin_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 5)

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 500)

    def offset_at(self, place: Partition, timestamp_ms: int, end: int) -> int:
        return min(timestamp_ms + place[1], end)


def moves_of(goals: dict[str, dict[int | None, Goal]], *topics: Topic) -> list[Move]:
    found: Any = Topics(*(topics or (IN, NEW)))
    return find_moves(goals, OFFSETS, found)


class TestMoves:
    @pytest.mark.parametrize(
        ("goal", "to"),
        [
            (Goal(To.EARLIEST), [5, 5]),
            (Goal(To.LATEST), [500, 500]),
            (Goal(To.TIME, 50), [50, 51]),
            (Goal(To.TIME, 9_999), [500, 500]),
            (Goal(To.OFFSET, 500), [500, 500]),
        ],
    )
    def test_all_partitions_of_a_topic_move(self, goal: Goal, to: list[int]) -> None:
        assert moves_of({"in": {None: goal}}) == [Move("in", 0, 100, to[0]), Move("in", 1, 101, to[1])]

    def test_a_partition_without_an_offset_gets_one(self) -> None:
        assert moves_of({"new": {None: Goal(To.EARLIEST)}}) == [Move("new", 0, None, 5)]

    def test_one_partition_may_move_alone(self) -> None:
        assert moves_of({"in": {1: Goal(To.OFFSET, 6)}}) == [Move("in", 1, 101, 6)]

    @pytest.mark.parametrize("offset", [4, 501])
    def test_the_offset_must_exist(self, offset: int) -> None:
        with pytest.raises(ConfigError, match=f"in-0 has no offset {offset}. Use one from 5 to 500"):
            moves_of({"in": {None: Goal(To.OFFSET, offset)}})

    def test_the_partition_must_exist(self) -> None:
        with pytest.raises(ConfigError, match="Topic 'in' has no partition 2: it has 2 partitions"):
            moves_of({"in": {2: Goal(To.LATEST)}})

    def test_the_topic_must_exist(self) -> None:
        with pytest.raises(TopicError, match="Topics do not exist: other"):
            moves_of({"other": {None: Goal(To.LATEST)}})


def accepted(written: list[SourceOffset], **ids: str) -> Any:
    """The progress that a start finds afterwards."""
    found: dict[Partition, tuple[int, str] | None] = dict(OFFSETS)
    found |= {(sent.topic, sent.partition): (sent.offset, sent.metadata) for sent in written}
    return past(found, {"in": "id-in", **ids}, 8, TopologyFacts("f", {}, ["in"], incarnation="a1"))


class TestKeptState:
    def test_a_start_continues_there_from_the_same_epoch(self) -> None:
        base = base_of_kept_state("app", OFFSETS, CONFIG, Topics())  # type: ignore[arg-type]
        written = new_offsets([Move("in", 0, 100, 5), Move("in", 1, 101, 500)], OFFSETS, {"in": IN}, base)
        before = accepted(written)
        assert (before.progress.epoch, before.incarnation, before.lanes) == (7, "a1", 2)
        assert before.progress.offsets == {("in", 0): 5, ("in", 1): 500}
        assert set(before.progress.high_times.values()) == {-1}
        assert set(before.progress.watermarks.values()) == {-1}

    def test_other_partitions_keep_their_offsets(self) -> None:
        before = accepted(new_offsets([Move("in", 0, 100, 5)], OFFSETS, {"in": IN}, SEVEN))
        assert before.progress.offsets == {("in", 0): 5, ("in", 1): 101}
        assert before.progress.high_times == {("in", 0): -1, ("in", 1): 99}
        assert before.progress.watermarks == {("in", 0): -1, ("in", 1): 90}

    def test_a_topic_that_is_new_to_the_application_is_accepted_too(self) -> None:
        before = accepted(new_offsets([Move("new", 0, None, 5)], OFFSETS, {"new": NEW}, SEVEN), new="id-new")
        assert before.progress.offsets["new", 0] == 5

    def test_a_topic_that_was_created_again_is_read_from_there(self) -> None:
        again = replace(IN, topic_id="another")
        before = accepted(
            new_offsets([Move("in", 0, 1, 5), Move("in", 1, 1, 5)], OFFSETS, {"in": again}, SEVEN), **{"in": "another"}
        )
        assert before.progress.offsets == {("in", 0): 5, ("in", 1): 5}

    def test_a_new_partition_is_written_as_well(self) -> None:
        more = replace(IN, partitions=3)
        moves = [Move("in", number, None, 5) for number in range(3)]
        before = accepted(new_offsets(moves, OFFSETS, {"in": more}, SEVEN))
        assert before.progress.offsets == {("in", 0): 5, ("in", 1): 5, ("in", 2): 5}
        assert before.added == frozenset()

    @pytest.mark.parametrize("topic", [replace(IN, partitions=3), replace(IN, topic_id="another")])
    def test_all_partitions_without_an_offset_must_be_moved(self, topic: Topic) -> None:
        with pytest.raises(ConfigError, match=r"Partition [12] of topic 'in' has no committed offset"):
            new_offsets([Move("in", 0, 100, 5)], OFFSETS, {"in": topic}, SEVEN)


class TestNoState:
    def test_a_start_begins_there_without_state(self) -> None:
        base = base_of_no_state(CONFIG)
        written = new_offsets([Move("in", 0, 100, 5), Move("in", 1, 101, 6)], {}, {"in": IN}, base)
        found = {(sent.topic, sent.partition): (sent.offset, sent.metadata) for sent in written}
        before = past({**found, ("other", 0): None}, {"in": "id-in", "other": "x"}, 8)
        assert before is not None
        assert (before.progress.epoch, before.progress.offsets) == (0, {("in", 0): 5, ("in", 1): 6})
        assert before.incarnation not in {"", "a1", base_of_no_state(CONFIG).incarnation}
