"""Table–table joins: what each side forwards when the other has a row and when it has none, and the resulting table."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProcessingError, StateError
from penstock.operators.table_joins import JoinKind, TableJoinMerger, TableJoinSide
from penstock.operators.tables import TableSource
from penstock.records import Change, ValueAndTimestamp
from tests.unit.operators.table_host import Bench, Out, Refusing, apply, table, versioned_table

HEADERS = (("trace", b"1"),)
KINDS: dict[str, tuple[JoinKind, JoinKind]] = {
    "inner": ("inner", "inner"),
    "left": ("left", "right"),
    "outer": ("outer", "outer"),
}


def pair(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def bench(kind: str, *, old: bool = True, store: str | None = None, cached: bool = False, versioned: bool = False) -> Bench:
    """Tables `l` and `r`, their join `j` with its sides `this` and `other`."""
    this_kind, other_kind = KINDS[kind]
    left, right = (versioned_table("l", 1000), versioned_table("r", 1000)) if versioned else (table("l"), table("r"))
    return (
        Bench(left, right, table("s", cached=cached))
        .add("l", TableSource("l", True))
        .add("r", TableSource("r", True))
        .add("this", TableJoinSide(this_kind, "l", "r", pair, False, old, versioned), "l")
        .add("other", TableJoinSide(other_kind, "r", "l", pair, True, old, versioned), "r")
        .add("j", TableJoinMerger("this", "other", store, old), "this", "other")
    )


Step = tuple[str, "str | None", "tuple[str | None, str | None] | None"]

# Which side gets which value, and the expected change: (new, old), or None for no change.
SCENARIOS: dict[str, list[Step]] = {
    "inner": [
        ("l", "A", None),
        ("r", "1", ("A+1", None)),
        ("l", "B", ("B+1", "A+1")),
        ("r", "2", ("B+2", "B+1")),
        ("r", None, (None, "B+2")),
        ("l", "C", None),
        ("r", None, (None, None)),
        ("l", None, None),
        ("r", "3", None),
        ("l", None, (None, None)),
    ],
    "left": [
        ("r", "1", None),
        ("l", "A", ("A+1", None)),
        ("r", None, ("A+None", "A+1")),
        ("r", None, ("A+None", "A+None")),
        ("l", "B", ("B+None", "A+None")),
        ("r", "2", ("B+2", "B+None")),
        ("l", None, (None, "B+2")),
        ("l", None, (None, None)),
        ("r", None, None),
        ("l", None, None),
        ("l", "C", ("C+None", None)),
        ("l", None, (None, "C+None")),
    ],
    "outer": [
        ("r", "1", ("None+1", None)),
        ("l", "A", ("A+1", "None+1")),
        ("r", None, ("A+None", "A+1")),
        ("l", None, (None, "A+None")),
        ("l", None, None),
        ("r", None, None),
        ("l", "B", ("B+None", None)),
        ("r", "2", ("B+2", "B+None")),
        ("l", None, ("None+2", "B+2")),
        ("r", None, (None, "None+2")),
    ],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("store", [None, "s"])
def test_scenario(kind: str, old: bool, store: str | None) -> None:
    lane = bench(kind, old=old, store=store)
    for time, (side, value, change) in enumerate(SCENARIOS[kind]):
        forwarded = [Change(*out.value) for out in lane.pipe(side, "k", value, time)]
        expected = [] if change is None else [Change(change[0], change[1] if old else None)]
        assert forwarded == expected, f"step {time}: {side}={value}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("left", "right"), [(5, 9), (9, 5)])
def test_the_result_has_the_later_of_both_times(kind: str, left: int, right: int) -> None:
    lane = bench(kind)
    lane.pipe("l", "k", "A", left)
    (out,) = lane.pipe("r", "k", "1", right)
    assert out == Out("k", Change("A+1", out.value.old), 9)
    assert lane.view("j").get("k") == ("A+1", 9)
    (out,) = lane.pipe("l", "k", "B", 1)
    assert out.timestamp == max(1, right)


def test_without_the_other_row_the_result_has_its_own_rows_time() -> None:
    lane = bench("left")
    assert lane.pipe("l", "k", "A", 3, HEADERS) == [Out("k", Change("A+None", None), 3)]
    assert lane.headers == [HEADERS]


def test_a_null_key_is_dropped() -> None:
    lane = bench("outer")
    assert lane.pipe("this", None, Change("A")) == []
    assert lane.drops == [("this", "null key")]


def test_a_versioned_join_drops_out_of_order_changes() -> None:
    lane = bench("inner", versioned=True)
    lane.pipe("l", "k", "A", 20)
    assert lane.pipe("r", "k", "1", 10) == [Out("k", Change("A+1", None, True), 20)]
    assert lane.pipe("l", "k", "late", 15) == []
    assert lane.drops == [("this", "out of order")]
    assert lane.pipe("r", "k", "2", 30) == [Out("k", Change("A+2", "A+1", True), 30)]


def test_an_unversioned_join_forwards_out_of_order_changes() -> None:
    lane = (
        Bench(table("r")).add("r", TableSource("r", False)).add("j", TableJoinSide("inner", "l", "r", pair, False, False, False))
    )
    lane.pipe("r", "k", "1", 1)
    assert lane.pipe("j", "k", Change("A", None, False), 2) == [Out("k", Change("A+1", None, False), 2)]


def test_a_failing_joiner_names_its_side() -> None:
    lane = bench("outer")
    failing = TableJoinSide("outer", "l", "r", lambda left, right: left + right, False, True, False)
    lane.add("this", failing, "l")
    with pytest.raises(ProcessingError, match="this: "):
        lane.pipe("l", "k", "A")


@pytest.mark.parametrize("node", ["this", "j"])
def test_a_failure_below_is_not_reported_by_this_node(node: str) -> None:
    lane = bench("outer", store="s")
    lane.add("below", Refusing(), node)
    with pytest.raises(ProcessingError, match=r"^refused"):
        lane.pipe(node, "k", Change("A"))
    assert lane.failures == []


@pytest.mark.parametrize("old", [True, False])
def test_the_old_value_of_a_cached_join_is_the_stored_one(old: bool) -> None:
    lane = bench("outer", old=old, store="s", cached=True)
    lane.pipe("l", "k", "A", 1)
    assert lane.flush() == [Out("k", Change("A+None", None), 1)]
    lane.pipe("r", "k", "1", 2)
    lane.pipe("r", "k", "2", 3)
    assert lane.flush() == [Out("k", Change("A+2", "A+None" if old else None), 3)]
    lane.pipe("r", "k", None, 4)
    lane.pipe("l", "k", None, 5)
    assert lane.flush() == [Out("k", Change(None, "A+2" if old else None), 5)]
    lane.pipe("l", "k", "B", 6)
    lane.pipe("l", "k", None, 7)
    assert lane.flush() == []


def test_a_join_in_a_versioned_store_forwards_what_the_store_accepted() -> None:
    lane = Bench(versioned_table("s", 100)).add("j", TableJoinMerger("this", "other", "s", True))
    assert lane.pipe("j", "k", Change("A+1", None), 500) == [Out("k", Change("A+1", None, True), 500)]
    assert lane.pipe("j", "k", Change("A+2", "A+1", True), 450) == [Out("k", Change("A+2", "A+1", False), 450)]
    assert lane.pipe("j", "k", Change("A+3", "A+2"), 399) == []
    assert lane.view("j").get_as_of("k", 460) == ("A+2", 450)


def test_a_failure_of_the_joins_store_names_the_merger() -> None:
    lane = bench("inner", store="s")
    with pytest.raises(ProcessingError, match="j: "):
        lane.pipe("j", "k", ("not", "a", "change", "at", "all")[:0])


@pytest.mark.parametrize(
    ("kind", "only_left", "only_right"),
    [("inner", None, None), ("left", ("A+None", 1), None), ("outer", ("A+None", 1), ("None+1", 2))],
)
@pytest.mark.parametrize("side", ["this", "other", "j"])
def test_views(kind: str, only_left: Any, only_right: Any, side: str) -> None:
    lane = bench(kind)
    lane.pipe("l", "left", "A", 1)
    lane.pipe("r", "right", "1", 2)
    lane.pipe("l", "both", "A", 4)
    lane.pipe("r", "both", "1", 3)
    view = lane.view(side)
    assert view.get("left") == only_left
    assert view.get("right") == only_right
    assert view.get("both") == ValueAndTimestamp("A+1", 4)
    assert view.get("neither") is None


def test_a_join_of_versioned_tables_is_not_versioned() -> None:
    lane = bench("inner", versioned=True)
    assert not lane.view("j").is_versioned
    with pytest.raises(StateError, match="'this' cannot be read as of a time"):
        lane.view("j").get_as_of("k", 0)


def test_a_join_with_a_store_is_read_from_it() -> None:
    lane = bench("left", store="s")
    lane.pipe("l", "k", "A", 3)
    assert lane.view("j").get("k") == ("A+None", 3)


@pytest.mark.parametrize(
    "operator", [TableJoinSide("left", "l", "r", pair, False, True, False), TableJoinMerger("this", "other", None, True)]
)
def test_operators_are_picklable_values(operator: Any) -> None:
    assert pickle.loads(pickle.dumps(operator)) == operator


changes = st.lists(
    st.tuples(st.sampled_from("lr"), st.sampled_from("ab"), st.none() | st.sampled_from("123"), st.integers(0, 9), st.booleans()),
    max_size=25,
)


@given(st.sampled_from(sorted(KINDS)), st.booleans(), st.sampled_from([None, "s", "cached"]), changes)
def test_the_result_is_the_join_of_both_tables(kind: str, old: bool, store: str | None, steps: list[Any]) -> None:
    lane = bench(kind, old=old, store=store and "s", cached=store == "cached")
    tables: dict[str, dict[str, str]] = {"l": {}, "r": {}}
    result: dict[str, str] = {}
    for side, key, value, time, ends_epoch in steps:
        outputs = lane.pipe(side, key, value, time)
        apply(tables[side], [Out(key, value, time)])
        if store == "cached":
            outputs += lane.flush() if ends_epoch else []
        if old:
            assert all(result.get(out.key) == out.value.old for out in outputs if out.value.old is not None)
        apply(result, [Out(out.key, out.value.new, out.timestamp) for out in outputs])
        joined = _join(kind, tables["l"], tables["r"])
        if store != "cached" or ends_epoch:
            assert result == joined
        seen = {each: lane.view("j").get(each) for each in "ab"}
        assert {each: entry.value for each, entry in seen.items() if entry is not None} == joined


def _join(kind: str, left: dict[str, str], right: dict[str, str]) -> dict[str, str]:
    keys = {"inner": left.keys() & right.keys(), "left": left.keys(), "outer": left.keys() | right.keys()}[kind]
    return {key: pair(left.get(key), right.get(key)) for key in keys}
