"""The verdict on each store and source before a start, from facts alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.topology import SourceNode
from penstock.topology.plan import Changes, TopologyFacts, Verdict, facts, remembered, source_changes, store_changes
from penstock.topology.plan.changes import Decision

Declare = Callable[[StreamsBuilder], Any]


def facts_of(*declare: Declare) -> TopologyFacts:
    builder = StreamsBuilder()
    for one in declare:
        one(builder)
    topology = builder.build()
    return facts(topology, topology.describe())


def counts(store: str | None, topic: str = "in") -> Declare:
    return lambda builder: builder.stream(topic, value=str).group_by_key().count(store=store)


def table(store: str, value: type) -> Declare:
    return lambda builder: builder.table("t", value=value, store=store)


def verdicts(before: TopologyFacts | None, after: TopologyFacts, **more: Any) -> dict[str, Verdict]:
    return {change.name: change.verdict for change in store_changes(before, after, **more)}


def why(before: TopologyFacts | None, after: TopologyFacts, store: str, **more: Any) -> str:
    return next(change.why for change in store_changes(before, after, **more) if change.name == store)


class TestStores:
    def test_without_committed_state_all_are_new(self) -> None:
        assert verdicts(None, facts_of(counts("s"), table("t", str))) == {"s": Verdict.NEW, "t": Verdict.NEW}

    def test_an_unchanged_one_is_kept_and_an_added_one_is_new(self) -> None:
        before, after = facts_of(counts("s")), facts_of(counts("s"), table("t", str))
        assert verdicts(before, after) == {"s": Verdict.KEPT, "t": Verdict.NEW}
        assert why(before, after, "s") == "as committed"

    def test_a_renamed_one_is_lost_with_a_hint_at_the_new_name(self) -> None:
        before, after = facts_of(counts("s")), facts_of(counts("renamed"))
        assert verdicts(before, after) == {"renamed": Verdict.NEW, "s": Verdict.LOST}
        assert "the new store 'renamed' has the same layout" in why(before, after, "s")

    def test_one_of_another_layout_is_not_a_hint(self) -> None:
        assert "same layout" not in why(facts_of(counts("s")), facts_of(table("t", str)), "s")

    def test_a_changed_one_is_refused_with_the_change(self) -> None:
        before, after = facts_of(table("t", str)), facts_of(table("t", int))
        assert verdicts(before, after) == {"t": Verdict.REFUSED}
        assert why(before, after, "t") == "value was String() and is Int64()"

    def test_one_with_another_changelog_is_refused(self) -> None:
        same = facts_of(counts("s"))
        assert verdicts(same, same, refused={"s": "it has 8 partitions"}) == {"s": Verdict.REFUSED}
        assert why(same, same, "s", refused={"s": "it has 8 partitions"}) == "it has 8 partitions"

    def test_one_that_returns_is_rebuilt_and_a_removed_one_is_lost_once(self) -> None:
        both, one = facts_of(counts("s"), table("t", str)), facts_of(counts("s"))
        assert verdicts(both, one) == {"s": Verdict.KEPT, "t": Verdict.LOST}
        later = remembered(both, one)
        assert verdicts(later, one) == {"s": Verdict.KEPT}
        assert verdicts(later, both) == {"s": Verdict.KEPT, "t": Verdict.REBUILT}
        assert verdicts(remembered(later, both), both) == {"s": Verdict.KEPT, "t": Verdict.KEPT}

    def test_a_generated_name_is_pointed_out_when_the_topology_changed(self) -> None:
        unnamed = facts_of(counts(None))
        [store] = unnamed.stores
        assert why(unnamed, unnamed, store) == "as committed"
        grown = facts_of(counts(None), lambda builder: builder.stream("other").to("out"))
        assert verdicts(unnamed, grown) == {store: Verdict.KEPT}
        assert "give it a name" in why(unnamed, grown, store)

    def test_a_branch_before_an_unnamed_store_moves_its_name(self) -> None:
        shifted = facts_of(lambda builder: builder.stream("other").to("out"), counts(None))
        assert set(verdicts(facts_of(counts(None)), shifted).values()) == {Verdict.NEW, Verdict.LOST}

    def test_one_without_a_changelog_depends_on_files(self) -> None:
        same = facts_of(counts("s"))
        assert verdicts(same, same, unlogged={"s"}) == {"s": Verdict.KEPT}
        assert "kept only if the files" in why(same, same, "s", unlogged={"s"})

    def test_global_ones_follow_their_topics(self) -> None:
        assert verdicts(None, facts_of(counts("s")), global_stores=["g"]) == {"s": Verdict.NEW, "g": Verdict.KEPT}


def source(topic: str, reset: Any = None) -> SourceNode:
    builder = StreamsBuilder()
    builder.stream(topic, reset=reset).to("out")
    return next(node for node in builder.build().nodes.values() if isinstance(node, SourceNode))


class TestSources:
    @pytest.mark.parametrize(
        ("reset", "verdict", "said"),
        [
            (None, Verdict.NEW, "starts at its earliest record"),
            ("earliest", Verdict.NEW, "starts at its earliest record"),
            ("latest", Verdict.NEW, "starts at its end: existing records are not read"),
            ("1h", Verdict.NEW, "starts 3600000 ms before now"),
            ("none", Verdict.REFUSED, "reset='none'"),
        ],
    )
    def test_a_new_one_starts_at_its_reset_position(self, reset: str | None, verdict: Verdict, said: str) -> None:
        [change] = source_changes({"in": source("in", reset)}, (), ())
        assert change.verdict is verdict
        assert said in change.why

    def test_a_known_one_resumes_whatever_its_reset(self) -> None:
        [change] = source_changes({"in": source("in", "none")}, {"in"}, {"in"})
        assert change == Decision("in", Verdict.KEPT, "resumes from the committed offsets")

    def test_one_that_the_last_topology_did_not_read_resumes_where_it_stopped(self) -> None:
        [change] = source_changes({"in": source("in")}, {"in"}, (), resumed={"in": 5})
        assert (change.verdict, change.why) == (
            Verdict.KEPT,
            "resumes where it stopped at epoch 5: the last topology did not read it",
        )

    def test_new_partitions_are_named(self) -> None:
        [change] = source_changes({"in": source("in", "latest")}, {"in"}, {"in"}, added={("in", 3), ("in", 2), ("other", 9)})
        assert change.verdict is Verdict.KEPT
        assert change.why.endswith("new partitions start at their earliest record: 2, 3")

    def test_a_created_topic_starts_at_its_earliest_record_whatever_its_reset(self) -> None:
        [change] = source_changes({"in": source("in", "none")}, (), (), added={("in", 0)})
        assert (change.verdict, change.why) == (Verdict.NEW, "created after the last commit: starts at its earliest record")

    def test_lost_records_are_mentioned(self) -> None:
        [change] = source_changes({"in": source("in")}, {"in"}, {"in"}, lost={"in": "5 records are gone"})
        assert change.why == "resumes from the committed offsets; 5 records are gone"

    def test_one_that_is_no_longer_read_is_dropped(self) -> None:
        changes = source_changes({"in": source("in")}, {"in", "old", "older"}, {"in", "old"})
        assert [(change.name, change.verdict) for change in changes] == [("in", Verdict.KEPT), ("old", Verdict.DROPPED)]


class TestChanges:
    def test_any_refusal_refuses_the_start(self) -> None:
        refused = Decision("s", Verdict.REFUSED, "")
        assert Changes((refused,), ()).is_refused
        assert Changes((), (refused,)).is_refused
        assert Changes((), (), ("topics are missing",)).is_refused
        assert not Changes((Decision("s", Verdict.KEPT, ""),), ()).is_refused

    def test_only_lost_stores_are_a_loss(self) -> None:
        assert Changes((Decision("s", Verdict.LOST, ""),), ()).loses_state
        assert not Changes((Decision("s", Verdict.NEW, ""),), (Decision("in", Verdict.DROPPED, ""),)).loses_state
