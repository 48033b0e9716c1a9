"""What a start reads from Kafka, and everything it refuses to go on from, by name."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from penstock import StreamsBuilder, tumbling
from penstock.barrier import CommitMetadata
from penstock.epochs.sending import LaneNotes
from penstock.errors import IncompatibleTopologyError, StateError, TopicError
from penstock.plan import TopologyFacts, encode_facts, facts
from penstock.running.committed import (
    TOPOLOGY,
    LanesLog,
    Past,
    committed_state,
    facts_in,
    lanes_log,
    past,
    places,
    refuse_incompatible,
    refuse_lost_records,
    refuse_state_without_offsets,
)
from penstock.running.epochs import Progress
from penstock.running.taking import Partition

SEVEN = CommitMetadata(epoch=7, incarnation="a1", fingerprint="f", lanes=2, shards=8, high_time=99, topic_id="id-in")
FoundOffsets = dict[Partition, "tuple[int, str] | None"]


def found(**changes: CommitMetadata | None) -> FoundOffsets:
    """Three partitions of two topics at epoch 7; changed where said, by `topic_partition`."""
    other = replace(SEVEN, topic_id="id-other", high_time=50)
    committed: dict[str, CommitMetadata | None] = {"in_0": SEVEN, "in_1": replace(SEVEN, high_time=98), "other_0": other}
    committed.update(changes)
    names = {name: name.split("_") for name in committed}
    return {
        (topic, int(partition)): None if (about := committed[name]) is None else (100 + int(partition), about.encode())
        for name, (topic, partition) in names.items()
    }


IDS = {"in": "id-in", "other": "id-other"}


class TestPast:
    def test_it_is_what_all_partitions_agree_on(self) -> None:
        assert past(found(), IDS, 8) == Past(
            Progress(
                7,
                {("in", 0): 100, ("in", 1): 101, ("other", 0): 100},
                {("in", 0): 99, ("in", 1): 98, ("other", 0): 50},
                dict.fromkeys([("in", 0), ("in", 1), ("other", 0)], -1),
            ),
            "a1",
            2,
        )

    def test_there_is_none_before_the_first_commit(self) -> None:
        assert past({("in", 0): None, ("in", 1): None}, IDS, 8) is None
        assert past({}, IDS, 8) is None

    def test_a_topic_that_is_new_has_none(self) -> None:
        before = past(found(new_0=None, new_1=None), IDS, 8)
        assert before is not None
        assert set(before.progress.offsets) == {("in", 0), ("in", 1), ("other", 0)}

    @pytest.mark.parametrize("other", [replace(SEVEN, epoch=6), replace(SEVEN, epoch=8), replace(SEVEN, incarnation="b2")])
    def test_partitions_of_different_epochs_are_refused(self, other: CommitMetadata) -> None:
        with pytest.raises(StateError, match=r"somebody else has committed for this group\. Reset the application"):
            past(found(in_1=other), IDS, 8)

    def test_the_older_of_two_epochs_is_the_one_that_is_named(self) -> None:
        with pytest.raises(StateError, match="of in-1 is of epoch 6, others are of epoch 7"):
            past(found(in_1=replace(SEVEN, epoch=6)), IDS, 8)

    def test_an_offset_that_somebody_else_wrote_is_refused(self) -> None:
        with pytest.raises(
            StateError, match=r"the committed offset of in-1 was not written by Penstock \(a tool has reset it\?\)"
        ):
            past({**found(), ("in", 1): (5, "")}, IDS, 8)

    @pytest.mark.parametrize("text", ["{}", "null", "hello", '{"epoch":-1}', "\ud800"])
    def test_metadata_that_cannot_be_read_is_refused(self, text: str) -> None:
        with pytest.raises(StateError, match="committed metadata that this version cannot read"):
            past({**found(), ("in", 1): (5, text)}, IDS, 8)

    def test_a_topic_that_was_created_again_is_refused(self) -> None:
        with pytest.raises(TopicError, match="topic 'in' was deleted and created again since offsets were committed"):
            past(found(), {**IDS, "in": "another"}, 8)

    def test_a_topic_whose_id_was_not_known_then_is_taken(self) -> None:
        unknown = replace(SEVEN, topic_id=None)
        assert past(found(in_0=unknown, in_1=unknown), {**IDS, "in": "another"}, 8) is not None

    def test_a_partition_without_an_offset_beside_others_is_refused(self) -> None:
        with pytest.raises(TopicError, match="partition 2 of 'in' has no committed offset, others have one"):
            past(found(in_2=None), IDS, 8)

    def test_other_shards_are_refused(self) -> None:
        with pytest.raises(StateError, match="was started with shards=8 and cannot go on with shards=16"):
            past(found(), IDS, 16)


class TestLostRecords:
    PROGRESS = Progress(7, {("in", 0): 100, ("in", 1): 50}, {})

    @pytest.mark.parametrize("begin", [0, 100])
    def test_what_comes_next_may_be_the_first_there_is(self, begin: int) -> None:
        refuse_lost_records(self.PROGRESS, {("in", 0): begin, ("in", 1): 0}, {("in", 0): 100, ("in", 1): 900})

    def test_records_that_were_deleted_before_they_were_read_are_missed(self) -> None:
        with pytest.raises(TopicError, match="in-0: records from offset 100 to 101 were deleted before they were read"):
            refuse_lost_records(self.PROGRESS, {("in", 0): 101, ("in", 1): 0}, {("in", 0): 200, ("in", 1): 50})

    def test_a_topic_that_is_shorter_than_what_was_read_has_lost_records(self) -> None:
        with pytest.raises(TopicError, match="in-1 ends at offset 49, before the committed 50"):
            refuse_lost_records(self.PROGRESS, {("in", 0): 0, ("in", 1): 0}, {("in", 0): 100, ("in", 1): 49})

    def test_a_partition_that_nobody_asked_about_is_no_loss(self) -> None:
        refuse_lost_records(self.PROGRESS, {}, {})


def notes(lanes: int, epoch: int, **registers: int) -> bytes:
    return msgspec.msgpack.encode(LaneNotes(lanes, epoch, registers))


LOG = "app-lanes-changelog"


class TestStateWithoutOffsets:
    def test_state_without_offsets_is_refused(self) -> None:
        with pytest.raises(StateError, match="has no committed offsets, but its changelogs are not empty"):
            refuse_state_without_offsets("app", {(LOG, 0): 0, (LOG, 1): 5}, {(LOG, 0): 0, (LOG, 1): 6})

    def test_topics_that_hold_nothing_are_no_state(self) -> None:
        refuse_state_without_offsets("app", {(LOG, 0): 0, (LOG, 1): 5}, {(LOG, 0): 0, (LOG, 1): 5})


class TestLanesLog:
    def test_the_last_word_of_each_lane_counts(self) -> None:
        rows: list[tuple[str, int, list[bytes], list[bytes | None]]] = [
            (LOG, 0, [b"lane", b"lane"], [notes(2, 1, clock=5), notes(2, 2, clock=6)]),
            (LOG, 4, [b"lane"], [notes(2, 1, clock=9)]),
            (LOG, 4, [b"lane"], [notes(2, 3, clock=10)]),
        ]
        assert lanes_log("app", rows, 2, 8) == LanesLog(None, {0: {"clock": 6}, 1: {"clock": 10}})

    def test_facts_are_found_whatever_else_is_there_and_the_last_ones_count(self) -> None:
        older, newer = TopologyFacts("1", {}, []), TopologyFacts("2", {}, [])
        rows: list[tuple[str, int, list[bytes], list[bytes | None]]] = [
            (LOG, 0, [b"lane", TOPOLOGY], [notes(2, 1), encode_facts(older)]),
            (LOG, 0, [TOPOLOGY, b"reset"], [encode_facts(newer), None]),
        ]
        assert facts_in(rows) == newer
        assert facts_in([]) is None

    def test_what_was_said_under_another_number_of_lanes_is_history(self) -> None:
        rows: list[tuple[str, int, list[bytes], list[bytes | None]]] = [
            (LOG, 0, [b"lane", b"lane"], [notes(4, 9, clock=90), notes(2, 10, clock=7)]),
            (LOG, 2, [b"lane"], [notes(4, 9, clock=91)]),
            (LOG, 4, [b"lane", b"lane"], [notes(2, 10, clock=8), notes(4, 9, clock=92)]),
            (LOG, 6, [b"lane"], [notes(4, 9, clock=93)]),
        ]
        assert lanes_log("app", rows, 2, 8).registers == {0: {"clock": 7}, 1: {"clock": 8}}
        assert lanes_log("app", rows, 8, 8).registers == {}

    def test_a_lane_speaks_in_the_partition_of_its_first_shard_only(self) -> None:
        assert lanes_log("app", [(LOG, 1, [b"lane"], [notes(2, 1, clock=5)])], 2, 8).registers == {}

    def test_the_topologys_facts_are_the_last_that_were_written(self) -> None:
        old, new = (encode_facts(TopologyFacts(name, {}, [])) for name in ("old", "new"))
        log = lanes_log("app", [(LOG, 0, [TOPOLOGY, TOPOLOGY, b"lane"], [old, new, None])], 2, 8)
        assert log == LanesLog(TopologyFacts("new", {}, []), {})


class TestTopology:
    @staticmethod
    def facts_of(**options: str) -> TopologyFacts:
        builder = StreamsBuilder()
        grouped = builder.stream("in", value=str).group_by_key()
        grouped.windowed_by(tumbling(options.get("size", "1s"), grace="0s")).count(store="windows")
        for more in options.get("more", "").split():
            grouped.count(store=more)
        return facts(builder.build(), "fingerprint")

    def test_the_first_start_can_be_any(self) -> None:
        refuse_incompatible(None, self.facts_of())

    def test_it_may_grow_and_shrink(self) -> None:
        refuse_incompatible(self.facts_of(), self.facts_of(more="counts others"))
        refuse_incompatible(self.facts_of(more="counts"), self.facts_of())

    def test_a_store_that_changed_is_refused_with_what_changed(self) -> None:
        expected = "store 'windows': .*window was 1000 ms and is 2000 ms(.|\n)*Give changed stores new names"
        with pytest.raises(IncompatibleTopologyError, match=expected) as refused:
            refuse_incompatible(self.facts_of(), self.facts_of(size="2s"))
        assert refused.value.exit_code == 4


class TestCommittedState:
    def test_lanes_are_brought_to_the_last_commit(self) -> None:
        before = past(found(), IDS, 8)
        log = LanesLog(None, {0: {"clock": 5}, 1: {"clock": 9}})
        state = committed_state(before, log, 1, 8, {("c", 0): 3}, {("c", 0): 9}, 77)
        assert (state.epoch, state.incarnation, state.now_ms) == (7, "a1", 77)
        assert (state.begins, state.ends) == ({"c/0": 3}, {"c/0": 9})
        assert state.registers == {0: {"clock": 9}}

    def test_before_the_first_commit_there_is_nothing_to_come_to(self) -> None:
        state = committed_state(None, LanesLog(None, {}), 2, 8, {}, {}, 77)
        assert (state.epoch, state.incarnation, state.registers) == (-1, "", {})

    def test_places_are_named_as_marks_name_them(self) -> None:
        assert places({("a/b", 3): 7}) == {"a/b/3": 7}
