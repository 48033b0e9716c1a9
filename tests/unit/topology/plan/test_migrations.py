"""What may become of a store whose values have another version, or other fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cloudpickle
import msgspec
import pytest
from pydantic import BaseModel

from penstock import Store, StreamsBuilder, Topology
from penstock.errors import StateError, TopologyError
from penstock.topology.plan import TopologyFacts, Verdict, convertible, facts, migrating, migrations, store_changes


def counting(version: int = 1, *, migrates: bool = False, value: Any = dict, ttl: str | None = None) -> Topology:
    builder = StreamsBuilder()
    migrate = (lambda old: old) if migrates else None
    store = Store("totals", value=value, version=version, migrate=migrate, ttl=ttl)
    builder.stream("in", value=str).group_by_key().aggregate(dict, lambda key, value, total: total, store=store)
    return builder.build()


def judged(committed: TopologyFacts, after: Topology) -> tuple[Verdict, str]:
    [change] = store_changes(committed, facts(after, "2"), convertible=convertible(after.stores))
    return change.verdict, change.why


def test_the_next_version_is_migrated() -> None:
    after = counting(2, migrates=True)
    assert judged(facts(counting(), "1"), after)[0] is Verdict.MIGRATED
    assert migrations(facts(counting(), "1"), facts(after, "2"), convertible(after.stores)) == ["totals"]


def test_the_same_version_is_not_migrated_again() -> None:
    after = counting(2, migrates=True)
    assert judged(facts(after, "1"), after)[0] is Verdict.KEPT
    assert migrations(facts(after, "1"), facts(after, "2"), convertible(after.stores)) == []
    assert judged(facts(after, "1"), counting(2))[0] is Verdict.KEPT


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (counting(), counting(2), "say with migrate= how"),
        (counting(), counting(3, migrates=True), "start version 2 first"),
        (counting(2), counting(), "cannot become version 1 again"),
        (counting(ttl="1h"), counting(2, migrates=True), "changes more than values"),
    ],
    ids=["no-function", "skipped", "back", "more"],
)
def test_other_versions_are_refused(before: Topology, after: Topology, why: str) -> None:
    verdict, reason = judged(facts(before, "1"), after)
    assert verdict is Verdict.REFUSED
    assert why in reason


def test_a_migration_that_has_begun_can_only_be_continued() -> None:
    after = counting(2, migrates=True)
    begun = migrating(facts(counting(), "1"), ["totals"], facts(after, "2"))
    assert judged(begun, after)[0] is Verdict.MIGRATED
    verdict, why = judged(begun, counting())
    assert verdict is Verdict.REFUSED
    assert "its migration to version 2 is not complete" in why


def typed(name: str, **fields: Any) -> Any:
    """A type of this name with fields: `(type, default)` or `(type,)`."""
    return msgspec.defstruct(name, [(field, *about) for field, about in fields.items()], kw_only=True)


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (typed("Total", n=(int,)), Verdict.KEPT),
        (typed("Total", n=(int,), note=(str, "")), Verdict.KEPT),
        (typed("Total", m=(int, 0)), Verdict.KEPT),
        (typed("Total", n=(int,), note=(str,)), Verdict.REFUSED),
    ],
    ids=["same", "default", "removed", "required"],
)
def test_new_fields_need_a_default(after: Any, verdict: Verdict) -> None:
    before = facts(counting(value=typed("Total", n=(int,))), "1")
    assert judged(before, counting(value=after))[0] is verdict


def test_a_type_can_still_be_pickled_afterwards() -> None:
    @dataclass
    class Local:
        n: int = 0

    topology = counting(value=Local)
    facts(topology, "1")
    assert cloudpickle.loads(cloudpickle.dumps(topology)).stores.keys() == {"totals"}


def test_fields_of_every_kind_of_type_are_known() -> None:
    @dataclass
    class Plain:
        n: int
        note: str = ""

    class Model(BaseModel):
        n: int
        note: str = ""

    for kind in (Plain, Model):
        assert facts(counting(value=kind), "1").stores["totals"]["fields"] == "n, note?"


def test_the_first_version_cannot_be_migrated() -> None:
    with pytest.raises(StateError, match="migrate= is for version 2 and later"):
        counting(1, migrates=True)


def test_a_versioned_table_cannot_be_migrated() -> None:
    builder = StreamsBuilder()
    builder.table("in", store=Store("rows", history="1d", version=2, migrate=lambda old: old))
    with pytest.raises(StateError, match="of key-value, window and session stores"):
        builder.build()


def test_the_signature_of_the_function_is_checked() -> None:
    def takes_nothing() -> None:
        """Return nothing."""

    wrong: Any = takes_nothing
    builder = StreamsBuilder()
    builder.table("in", store=Store("rows", version=2, migrate=wrong))
    with pytest.raises(TopologyError, match="migrate="):
        builder.build()
