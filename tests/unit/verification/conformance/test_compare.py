"""What counts as a difference, and how it is shown."""

from pathlib import Path
from typing import Any

import pytest

from verification.conformance.compare import differences, settled
from verification.conformance.coverage import exercised
from verification.conformance.left_out import LEFT_OUT, is_left_out
from verification.conformance.mutants import MutantError, plant
from verification.conformance.planted import MUTANTS, Mutant
from verification.conformance.regressions import regressions
from verification.conformance.shrink import shrink
from verification.conformance.spec import Case, Pipe


def result(**parts: Any) -> dict[str, Any]:
    return {"id": "1/0", "describe": "", "outputs": {}, "effects": {}, "stores": {}, **parts}


RECORD = [0, "61", "62", 5, []]


def test_equal_results_do_not_differ() -> None:
    one = result(outputs={"out": [RECORD]}, stores={"s": {"kind": "key_value", "entries": [["s:a", "l:1"]]}})
    assert differences(one, one) == []


@pytest.mark.parametrize(("at", "other"), [(0, 1), (1, "63"), (2, None), (3, 6), (4, [["h", None]])])
def test_step_key_value_timestamp_and_headers_of_a_record_count(at: int, other: Any) -> None:
    changed = [other if index == at else part for index, part in enumerate(RECORD)]
    found = differences(result(outputs={"out": [RECORD]}), result(outputs={"out": [changed]}))
    assert [difference.kind for difference in found] == ["output"]


def test_the_order_of_records_counts() -> None:
    second = [0, "61", "63", 5, []]
    assert differences(result(outputs={"out": [RECORD, second]}), result(outputs={"out": [second, RECORD]}))


def test_a_missing_record_is_shown_with_the_one_before() -> None:
    found = differences(result(outputs={"out": [RECORD, RECORD]}), result(outputs={"out": [RECORD]}))
    assert "both before:   'a' = 'b' @5 (step 0)" in found[0].text
    assert "Penstock:      nothing" in found[0].text


def test_entries_of_window_stores_may_come_in_any_order_but_those_of_key_value_stores_not() -> None:
    rows = [["s:a@0/5", "l:1"], ["s:b@0/5", "l:1"]]
    for kind, count in (("window", 0), ("session", 0), ("key_value", 1)):
        one = result(stores={"s": {"kind": kind, "entries": rows}})
        two = result(stores={"s": {"kind": kind, "entries": rows[::-1]}})
        assert len(differences(one, two)) == count


def test_a_store_that_is_missing_differs_unless_it_is_left_out() -> None:
    content = {"kind": "key_value", "entries": []}
    assert differences(result(stores={"s": content}), result())
    assert differences(result(stores={"KTABLE-SUPPRESS-STATE-STORE-0000000003": content}), result()) == []


def test_both_sides_may_fail_at_the_same_step() -> None:
    failing = {"id": "1/0", "error": {"step": 3, "class": "StreamsException", "message": "no"}}
    same = {"id": "1/0", "error": {"step": 3, "class": "ProcessingError", "message": "also no"}}
    later = {"id": "1/0", "error": {"step": 4, "class": "ProcessingError", "message": "no"}}
    assert differences(failing, same) == []
    assert [found.kind for found in differences(failing, later)] == ["error"]
    assert [found.kind for found in differences(failing, result())] == ["error"]
    assert [found.kind for found in differences(result(), same)] == ["error"]


def test_lists_of_names_in_a_description_have_no_order() -> None:
    one = "    Processor: p (stores: [b, a])\n      --> y, x\n      <-- s\n"
    two = "    Processor: p (stores: [a, b])\n      --> x, y\n      <-- s\n"
    assert settled(one) == settled(two)
    assert settled(one) != settled(two.replace("x", "z"))


def test_everything_left_out_has_a_reason() -> None:
    assert all(item.name and item.reason for item in LEFT_OUT)
    assert not is_left_out("store-1")


def test_a_verb_counts_only_where_its_records_arrive() -> None:
    case = next(case for case in regressions() if case.id == "filter keeps by predicate")
    assert exercised(case, result(outputs={"out": [RECORD]})) == {"builder_stream", "stream_filter", "stream_to"}
    assert exercised(case, result()) == set()
    assert exercised(case, {"id": "x", "error": {"step": 0}}) == set()


def test_shrinking_keeps_what_fails_and_nothing_else() -> None:
    case = next(case for case in regressions() if case.id == "split sends to the first match")

    def fails(one: Case) -> bool:
        return any(isinstance(step, Pipe) and step.value == "xb" for step in one.steps) and any(op.id == "n" for op in one.ops)

    small = shrink(case, fails)
    assert [op.id for op in small.ops] == ["s", "n"]
    assert len(small.steps) == 1


def test_mutants_can_be_planted_and_a_stale_one_is_detected(tmp_path: Path) -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
    for mutant in MUTANTS:
        assert mutant.new in (plant(mutant, tmp_path) / "penstock" / mutant.module).read_text()
    with pytest.raises(MutantError, match="not once"):
        plant(Mutant("stale", "operators/windowed.py", "no such text", ""), tmp_path)
