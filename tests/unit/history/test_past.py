"""Where an application continues, from the committed offsets: after any change of its topology and its topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import StateError, TopicError
from penstock.history.past import NO_STATE, Lost, Past, lost_input, past, refuse_lost_input
from penstock.history.progress import Progress
from penstock.kafka.commit import CommitMetadata
from penstock.records import Partition
from penstock.topology.plan import TopologyFacts

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


def facts_of(*sources: str, incarnation: str = "a1") -> TopologyFacts:
    """The facts of the start that committed last."""
    return TopologyFacts("f", {}, list(sources), incarnation=incarnation)


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
        with pytest.raises(StateError, match=r"another program has committed offsets for this group\. Reset the application"):
            past(found(in_1=other), IDS, 8)

    def test_the_older_of_two_epochs_is_the_one_that_is_named(self) -> None:
        with pytest.raises(StateError, match="of in-1 is of epoch 6, others are of epoch 7"):
            past(found(in_1=replace(SEVEN, epoch=6)), IDS, 8)

    def test_an_offset_that_another_program_wrote_is_refused(self) -> None:
        with pytest.raises(
            StateError, match=r"The committed offset of in-1 was not written by Penstock \(perhaps another tool reset it\)"
        ):
            past({**found(), ("in", 1): (5, "")}, IDS, 8)

    @pytest.mark.parametrize("text", ["{}", "null", "hello", '{"epoch":-1}', "\ud800"])
    def test_metadata_that_cannot_be_read_is_refused(self, text: str) -> None:
        with pytest.raises(StateError, match="This version cannot read the committed metadata"):
            past({**found(), ("in", 1): (5, text)}, IDS, 8)

    def test_a_topic_that_was_created_again_is_refused(self) -> None:
        with pytest.raises(TopicError, match="Topic 'in' was deleted and created again since offsets were committed"):
            past(found(), {**IDS, "in": "another"}, 8)

    def test_a_topic_whose_id_was_not_committed_is_accepted(self) -> None:
        unknown = replace(SEVEN, topic_id=None)
        assert past(found(in_0=unknown, in_1=unknown), {**IDS, "in": "another"}, 8) is not None

    def test_a_partition_without_an_offset_beside_others_is_refused(self) -> None:
        with pytest.raises(TopicError, match="Partition 2 of topic 'in' was read before, but has no committed offset"):
            past(found(in_2=None), IDS, 8)

    def test_another_number_of_shards_is_refused(self) -> None:
        with pytest.raises(StateError, match="committed state has shards=8, but the application was started with shards=16"):
            past(found(), IDS, 16)

    def test_offsets_without_state_allow_another_number_of_shards(self) -> None:
        reset = replace(SEVEN, fingerprint=NO_STATE)
        assert past(found(in_0=reset, in_1=reset), IDS, 16) is not None


class TestGoingBack:
    """The last commit is of a topology that read other topics than this one."""

    OLD = replace(SEVEN, epoch=5, incarnation="zz", topic_id="id-other")

    def test_a_source_that_was_removed_for_a_while_resumes_where_it_stopped(self) -> None:
        before = past(found(other_0=self.OLD), IDS, 8, facts_of("in"))
        assert before is not None
        assert before.progress.epoch == 7
        assert before.progress.offsets["other", 0] == 100
        assert before.resumed == {"other": 5}
        assert (before.incarnation, before.added) == ("a1", frozenset())

    def test_its_partitions_have_to_agree_all_the_same(self) -> None:
        with pytest.raises(StateError, match="of other-1 is of epoch 4, others are of epoch 5"):
            past(found(other_0=self.OLD, other_1=replace(self.OLD, epoch=4)), IDS, 8, facts_of("in"))

    def test_one_that_the_last_commit_covered_cannot_be_older(self) -> None:
        with pytest.raises(StateError, match="of other-0 is of epoch 5, others are of epoch 7: another program has committed"):
            past(found(other_0=self.OLD), IDS, 8, facts_of("in", "other"))

    def test_facts_of_a_start_without_a_commit_are_ignored(self) -> None:
        before = past(found(other_0=self.OLD), IDS, 8, facts_of("in", "other", incarnation="died"))
        assert before is not None
        assert before.resumed == {"other": 5}

    def test_two_starts_never_commit_the_same_epoch(self) -> None:
        with pytest.raises(StateError, match="another program has committed"):
            past(found(other_0=replace(self.OLD, epoch=7)), IDS, 8)

    def test_the_last_commit_counts_even_if_none_of_its_topics_is_read_any_more(self) -> None:
        """All sources were renamed, or the application returns to a version that read another topic."""
        before = past(found(new_0=None), {"new": "id-new"}, 8, facts_of("in", "other"))
        assert before == Past(Progress(7, {}, {}, {}), "a1", 2)
        before = past(found(other_0=self.OLD), {"other": "id-other"}, 8, facts_of("in"))
        assert before is not None
        assert (before.progress.epoch, before.progress.offsets) == (7, {("other", 0): 100})

    def test_a_topic_that_is_no_longer_read_may_be_recreated(self) -> None:
        assert past(found(), {"in": "id-in"}, 8, facts_of("in", "other")) is not None


class TestPartitionsThatCame:
    TWO = replace(SEVEN, partitions=2)

    def test_one_beyond_those_that_were_committed_is_new(self) -> None:
        before = past(found(in_0=self.TWO, in_1=self.TWO, in_2=None, in_3=None), IDS, 8)
        assert before is not None
        assert before.added == {("in", 2), ("in", 3)}

    def test_one_of_those_that_were_committed_has_lost_its_offset(self) -> None:
        with pytest.raises(
            TopicError, match=r"Partition 1 of topic 'in' was read before, .* expired .*reset --keep-state --to-earliest in"
        ):
            past(found(in_0=self.TWO, in_1=None), IDS, 8)

    def test_a_topic_that_matches_a_pattern_which_was_read_before_is_new(self) -> None:
        offsets = found(eu_0=None, us_0=None)
        before = past(offsets, {**IDS, "eu": "1", "us": "2"}, 8, facts_of("in", "other", "e.*"), {"eu": "e.*", "us": "u.*"})
        assert before is not None
        assert before.added == {("eu", 0)}

    def test_a_committed_topic_without_any_offset_is_refused(self) -> None:
        with pytest.raises(TopicError, match="Topic 'gone' was part of the last commit, but has no committed offset"):
            past(found(gone_0=None), {**IDS, "gone": "1"}, 8, facts_of("in", "other", "gone"))

    def test_a_new_topic_begins_at_the_reset_position_of_its_source(self) -> None:
        before = past(found(new_0=None), {**IDS, "new": "1"}, 8, facts_of("in", "other"))
        assert before is not None
        assert before.added == frozenset()


OFFSETS = {("in", 0): 100, ("in", 1): 50}


class TestLostInput:
    @pytest.mark.parametrize("begin", [0, 100])
    def test_the_next_offset_may_be_the_first_of_its_topic(self, begin: int) -> None:
        assert lost_input(OFFSETS, {("in", 0): begin, ("in", 1): 0}, {("in", 0): 100, ("in", 1): 900}) == ()

    def test_records_that_were_deleted_before_they_were_read_are_reported(self) -> None:
        lost = lost_input(OFFSETS, {("in", 0): 103, ("in", 1): 0}, {("in", 0): 200, ("in", 1): 50})
        assert lost == (Lost("in", 0, 100, 103),)
        assert lost[0].count == 3
        with pytest.raises(TopicError, match=r"in-0: records from offset 100 to 103 were deleted .*on_lost_input = continue"):
            refuse_lost_input(lost)

    def test_a_topic_that_is_shorter_than_what_was_read_has_lost_records(self) -> None:
        lost = lost_input(OFFSETS, {("in", 0): 0, ("in", 1): 0}, {("in", 0): 100, ("in", 1): 49})
        assert (lost[0].goes_on_at, lost[0].count) == (49, 0)
        with pytest.raises(TopicError, match="in-1 ends at offset 49, before the committed offset 50"):
            refuse_lost_input(lost)

    def test_a_partition_with_unknown_bounds_is_not_lost(self) -> None:
        assert lost_input(OFFSETS, {}, {}) == ()
        refuse_lost_input(())
