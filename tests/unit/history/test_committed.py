"""What a start reads from Kafka, and every state that it refuses."""

from __future__ import annotations

import pytest

from penstock import StreamsBuilder, tumbling
from penstock.errors import IncompatibleTopologyError, StateError
from penstock.history.committed import (
    ACTIVE,
    TOPOLOGY,
    committed_state,
    facts_in,
    last_epoch,
    places,
    refuse_incompatible,
    refuse_incomplete_restore,
    refuse_state_of_lanes,
    refuse_state_without_offsets,
)
from penstock.history.past import Past
from penstock.history.progress import Progress
from penstock.records import ChangelogRows
from penstock.state import LaneState, memory_engine
from penstock.topology.plan import TopologyFacts, encode_facts, facts

BEFORE = Past(Progress(7, {("in", 0): 100}, {}), "a1", 2)


LOG = "app-lanes-changelog"


class TestStateWithoutOffsets:
    def test_state_without_offsets_is_refused(self) -> None:
        with pytest.raises(StateError, match="has no committed offsets, but its changelogs are not empty"):
            refuse_state_without_offsets("app", [(LOG, 0, [], []), (LOG, 1, [b"k"], [b"v"])])

    def test_empty_topics_are_not_state(self) -> None:
        refuse_state_without_offsets("app", [(LOG, 0, [], [])])

    def test_an_announcement_is_not_state(self) -> None:
        refuse_state_without_offsets("app", [(LOG, 0, [ACTIVE, ACTIVE], [b"one", b"two"])])
        with pytest.raises(StateError, match="has no committed offsets"):
            refuse_state_without_offsets("app", [(LOG, 0, [ACTIVE, b"registers"], [b"one", b"x"])])


def test_state_of_which_a_part_was_restored_is_refused() -> None:
    with pytest.raises(StateError, match="savepoint s1 was interrupted: its state is not complete"):
        refuse_incomplete_restore("app", TopologyFacts("", {}, [], restoring="s1"))
    refuse_incomplete_restore("app", TopologyFacts("", {}, []))
    refuse_incomplete_restore("app", None)


class TestLanesTopic:
    def test_facts_are_found_whatever_else_is_there_and_the_last_ones_count(self) -> None:
        older, newer = TopologyFacts("1", {}, []), TopologyFacts("2", {}, [])
        rows = [
            ChangelogRows(LOG, 0, [b"registers", TOPOLOGY], [b"anything", encode_facts(older)]),
            ChangelogRows(LOG, 0, [TOPOLOGY, b"reset", TOPOLOGY], [encode_facts(newer), None, None]),
        ]
        assert facts_in(rows) == newer
        assert facts_in([]) is None

    def test_state_of_earlier_versions_is_refused(self) -> None:
        rows = [
            ChangelogRows(LOG, 0, [b"registers"], [b"anything"]),
            ChangelogRows(LOG, 0, [TOPOLOGY, b"lane"], [encode_facts(TopologyFacts("1", {}, [])), b"notes"]),
        ]
        with pytest.raises(StateError, match=r"by an earlier version of Penstock, by lane instead of by shard\. Reset the"):
            refuse_state_of_lanes(rows)
        assert facts_in(rows) is not None  # a reset has to know the stores

    def test_deleted_state_and_registers_of_shards_are_accepted(self) -> None:
        refuse_state_of_lanes(
            [ChangelogRows(LOG, 0, [b"lane", b"registers"], [None, b"anything"]), ChangelogRows(LOG, 0, [], [])]
        )

    def test_the_last_epoch_is_the_newest_that_any_shard_has_written(self) -> None:
        rows = []
        for epoch, shard in ((7, 0), (9, 4), (8, 0)):
            state = LaneState(memory_engine())
            state.shard(shard).registers.register("clock", -1).value = epoch
            rows += [ChangelogRows(LOG, change.shard, change.keys, change.values) for change in state.commit(epoch)]
        assert last_epoch([*rows, ChangelogRows(LOG, 0, [TOPOLOGY], [b"anything"])]) == 9
        assert last_epoch([ChangelogRows(LOG, 0, [TOPOLOGY, b"reset"], [b"anything", None])]) is None


class TestTopology:
    @staticmethod
    def facts_of(**options: str) -> TopologyFacts:
        builder = StreamsBuilder()
        grouped = builder.stream("in", value=str).group_by_key()
        grouped.windowed_by(tumbling(options.get("size", "1s"), grace="0s")).count(store="windows")
        for more in options.get("more", "").split():
            grouped.count(store=more)
        return facts(builder.build(), "fingerprint")

    def test_the_first_start_accepts_any_topology(self) -> None:
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
    def test_shards_are_restored_to_the_last_commit(self) -> None:
        state = committed_state(BEFORE, {("c", 0): 3}, {("c", 0): 9}, 77, {"c": "id"})
        assert (state.epoch, state.incarnation, state.now_ms) == (7, "a1", 77)
        assert (state.begins, state.ends, state.topic_ids) == ({"c/0": 3}, {"c/0": 9}, {"c": "id"})

    def test_before_the_first_commit_there_is_nothing_to_restore(self) -> None:
        state = committed_state(None, {}, {}, 77, {})
        assert (state.epoch, state.incarnation) == (-1, "")

    def test_places_are_named_as_marks_name_them(self) -> None:
        assert places({("a/b", 3): 7}) == {"a/b/3": 7}
