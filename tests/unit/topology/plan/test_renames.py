"""What may become of a store that takes over the content of another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock import Store, StreamsBuilder, Topology, key_value_store
from penstock.errors import StateError
from penstock.topology.plan import (
    TopologyFacts,
    Verdict,
    convertible,
    facts,
    incompatibilities,
    migrations,
    renamed,
    renamed_stores,
    renames,
    renaming,
    store_changes,
)


def keeping(*stores: Store) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", value=str).group_by_key()
    for store in stores:
        grouped.aggregate(dict, lambda key, value, total: total, store=store)
    return builder.build()


OLD, NEW = Store("old", value=dict), Store("new", value=dict, renamed_from="old")
BEFORE = facts(keeping(OLD), "1")


def judged(committed: TopologyFacts | None, after: Topology) -> dict[str, tuple[Verdict, str]]:
    can, declared = convertible(after.stores), renamed_stores(after.stores)
    changes = store_changes(committed, facts(after, "2"), convertible=can, declared=declared)
    return {change.name: (change.verdict, change.why) for change in changes}


def refused(committed: TopologyFacts, after: Topology) -> list[str]:
    return incompatibilities(committed, facts(after, "2"), convertible(after.stores), renamed_stores(after.stores))


def test_the_content_is_taken_over_and_nothing_is_lost() -> None:
    found = judged(BEFORE, keeping(NEW))
    assert found.keys() == {"new"}
    verdict, why = found["new"]
    assert verdict is Verdict.RENAMED
    assert "the content of 'old' is copied, before records are processed; the changelog of 'old' is kept" in why


def test_without_the_declaration_it_is_lost_and_the_plan_says_what_to_declare() -> None:
    found = judged(BEFORE, keeping(Store("new", value=dict)))
    assert found["new"][0] is Verdict.NEW
    assert found["old"][0] is Verdict.LOST
    assert "declare it with renamed_from='old'" in found["old"][1]


def test_it_is_taken_over_once() -> None:
    after = keeping(NEW)
    done = renamed(BEFORE, {"new": "old"})
    assert renames(done, facts(after, "2"), {"new": "old"}) == {}
    assert judged(done, after)["new"][0] is Verdict.KEPT
    assert judged(None, after)["new"][0] is Verdict.NEW
    assert done.gone == ["old"]


def test_a_new_version_is_converted_after_it_is_copied() -> None:
    after = keeping(replace(NEW, version=2, migrate=lambda total: total))
    verdict, why = judged(BEFORE, after)["new"]
    assert verdict is Verdict.RENAMED
    assert "is copied, and then converted by migrate=" in why
    assert not refused(BEFORE, after)
    copied = renamed(BEFORE, {"new": "old"})
    assert migrations(copied, facts(after, "2"), convertible(after.stores)) == ["new"]


def test_a_rename_that_has_begun_can_only_be_continued() -> None:
    begun = renaming(BEFORE, {"new": "old"})
    assert judged(begun, keeping(NEW))["new"][0] is Verdict.RENAMED
    assert not refused(begun, keeping(NEW))
    for other in (keeping(OLD), keeping(Store("new", value=dict)), keeping(Store("newest", value=dict, renamed_from="new"))):
        [why] = [reason for reason in refused(begun, other) if reason.startswith("store 'new'")]
        assert "being copied from 'old', which is not complete" in why
        assert judged(begun, other)["new"][0] is Verdict.REFUSED


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (keeping(OLD), keeping(OLD, NEW), "which the topology still has"),
        (keeping(replace(OLD, logging=False)), keeping(NEW), "one of them has none"),
        (keeping(OLD), keeping(replace(NEW, logging=False)), "one of them has none"),
        (keeping(OLD), keeping(replace(NEW, key=int)), "key was"),
        (keeping(OLD), keeping(replace(NEW, version=2)), "say with migrate="),
    ],
    ids=["still-there", "unlogged", "no-longer-logged", "other-keys", "version"],
)
def test_what_cannot_be_taken_over_is_refused(before: Topology, after: Topology, why: str) -> None:
    committed = facts(before, "1")
    verdict, reason = judged(committed, after)["new"]
    assert verdict is Verdict.REFUSED
    assert why in reason
    assert any(why in line for line in refused(committed, after))


def test_every_kind_of_store_of_a_processor_can_take_over_another() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str)
    builder.add_state_store(replace(key_value_store("new", value=int), renamed_from="old"))
    assert renamed_stores({"new": replace(key_value_store("new"), renamed_from="old")}) == {"new": "old"}


def test_a_store_is_not_renamed_from_itself() -> None:
    with pytest.raises(StateError, match="renamed_from= is its own name"):
        keeping(Store("old", value=dict, renamed_from="old"))
