"""What is said about each store and source before a start, from facts alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.plan import Changes, TopologyFacts, Verdict, facts, remembered, source_changes, store_changes
from penstock.plan.changes import Change
from penstock.topology import SourceNode

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
    def test_without_anything_committed_all_are_new(self) -> None:
        assert verdicts(None, facts_of(counts("s"), table("t", str))) == {"s": Verdict.NEW, "t": Verdict.NEW}

    def test_one_that_is_as_it_was_is_kept_and_one_that_comes_is_new(self) -> None:
        before, after = facts_of(counts("s")), facts_of(counts("s"), table("t", str))
        assert verdicts(before, after) == {"s": Verdict.KEPT, "t": Verdict.NEW}
        assert why(before, after, "s") == "as it was committed"

    def test_one_that_is_renamed_is_lost_and_the_new_name_is_said_with_it(self) -> None:
        before, after = facts_of(counts("s")), facts_of(counts("renamed"))
        assert verdicts(before, after) == {"renamed": Verdict.NEW, "s": Verdict.LOST}
        assert "the new 'renamed' has the same layout" in why(before, after, "s")

    def test_one_of_another_layout_is_not_taken_for_the_lost_one(self) -> None:
        assert "same layout" not in why(facts_of(counts("s")), facts_of(table("t", str)), "s")

    def test_one_that_changed_is_refused_with_what_changed(self) -> None:
        before, after = facts_of(table("t", str)), facts_of(table("t", int))
        assert verdicts(before, after) == {"t": Verdict.REFUSED}
        assert why(before, after, "t") == "value was String() and is Int64()"

    def test_one_whose_changelog_is_another_is_refused(self) -> None:
        same = facts_of(counts("s"))
        assert verdicts(same, same, refused={"s": "it has 8 partitions"}) == {"s": Verdict.REFUSED}
        assert why(same, same, "s", refused={"s": "it has 8 partitions"}) == "it has 8 partitions"

    def test_one_that_comes_back_is_rebuilt_and_one_that_stays_away_is_lost_once(self) -> None:
        both, one = facts_of(counts("s"), table("t", str)), facts_of(counts("s"))
        assert verdicts(both, one) == {"s": Verdict.KEPT, "t": Verdict.LOST}
        later = remembered(both, one)
        assert verdicts(later, one) == {"s": Verdict.KEPT}
        assert verdicts(later, both) == {"s": Verdict.KEPT, "t": Verdict.REBUILT}
        assert verdicts(remembered(later, both), both) == {"s": Verdict.KEPT, "t": Verdict.KEPT}

    def test_a_name_that_counts_nodes_is_pointed_out_when_the_topology_is_another(self) -> None:
        unnamed = facts_of(counts(None))
        [store] = unnamed.stores
        assert why(unnamed, unnamed, store) == "as it was committed"
        grown = facts_of(counts(None), lambda builder: builder.stream("other").to("out"))
        assert verdicts(unnamed, grown) == {store: Verdict.KEPT}
        assert "name it" in why(unnamed, grown, store)

    def test_a_branch_before_an_unnamed_store_moves_its_name(self) -> None:
        shifted = facts_of(lambda builder: builder.stream("other").to("out"), counts(None))
        assert set(verdicts(facts_of(counts(None)), shifted).values()) == {Verdict.NEW, Verdict.LOST}

    def test_one_without_a_changelog_depends_on_files(self) -> None:
        same = facts_of(counts("s"))
        assert verdicts(same, same, unlogged={"s"}) == {"s": Verdict.KEPT}
        assert "only while the files" in why(same, same, "s", unlogged={"s"})

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
            (None, Verdict.NEW, "begins at its earliest record"),
            ("earliest", Verdict.NEW, "begins at its earliest record"),
            ("latest", Verdict.NEW, "begins at its end: what is there now is not read"),
            ("1h", Verdict.NEW, "begins 3600000 ms back from the start"),
            ("none", Verdict.REFUSED, "reset='none'"),
        ],
    )
    def test_a_new_one_begins_where_it_says(self, reset: str | None, verdict: Verdict, said: str) -> None:
        [change] = source_changes({"in": source("in", reset)}, (), ())
        assert change.verdict is verdict
        assert said in change.why

    def test_a_known_one_goes_on_whatever_it_says(self) -> None:
        [change] = source_changes({"in": source("in", "none")}, {"in"}, {"in"})
        assert change == Change("in", Verdict.KEPT, "goes on from the committed offsets")

    def test_one_that_the_last_topology_did_without_goes_on_where_it_was_left(self) -> None:
        [change] = source_changes({"in": source("in")}, {"in"}, (), resumed={"in": 5})
        assert (change.verdict, change.why) == (
            Verdict.KEPT,
            "goes on where it was left at epoch 5: the last topology did not read it",
        )

    def test_partitions_that_came_are_named(self) -> None:
        [change] = source_changes({"in": source("in", "latest")}, {"in"}, {"in"}, added={("in", 3), ("in", 2), ("other", 9)})
        assert change.verdict is Verdict.KEPT
        assert change.why.endswith("partitions that came since begin at their earliest record: 2, 3")

    def test_a_topic_that_came_begins_at_its_earliest_record_whatever_its_source_says(self) -> None:
        [change] = source_changes({"in": source("in", "none")}, (), (), added={("in", 0)})
        assert (change.verdict, change.why) == (Verdict.NEW, "came after the last commit: begins at its earliest record")

    def test_what_is_lost_is_said(self) -> None:
        [change] = source_changes({"in": source("in")}, {"in"}, {"in"}, lost={"in": "5 records are gone"})
        assert change.why == "goes on from the committed offsets; 5 records are gone"

    def test_one_that_is_no_longer_read_is_dropped(self) -> None:
        changes = source_changes({"in": source("in")}, {"in", "old", "older"}, {"in", "old"})
        assert [(change.name, change.verdict) for change in changes] == [("in", Verdict.KEPT), ("old", Verdict.DROPPED)]


class TestChanges:
    def test_a_refusal_of_anything_is_one_of_the_start(self) -> None:
        refused = Change("s", Verdict.REFUSED, "")
        assert Changes((refused,), ()).is_refused
        assert Changes((), (refused,)).is_refused
        assert Changes((), (), ("topics are missing",)).is_refused
        assert not Changes((Change("s", Verdict.KEPT, ""),), ()).is_refused

    def test_only_lost_stores_are_a_loss(self) -> None:
        assert Changes((Change("s", Verdict.LOST, ""),), ()).loses_state
        assert not Changes((Change("s", Verdict.NEW, ""),), (Change("in", Verdict.DROPPED, ""),)).loses_state
