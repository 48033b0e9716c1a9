"""What `make types` compares: missed and unexpected errors are reported."""

from __future__ import annotations

import pytest

from tests.types.__main__ import figures_of
from tests.types.verdicts import Error, expected_errors, judge

PROGRAM = {
    "use.py": """stream.to(5)  # error: arg-type | reportArgumentType
stream.to("out")
stream.no()  # error: attr-defined | reportNo
"""
}
FOUND = [Error("use.py", 1, "arg-type", "5 is not a topic"), Error("use.py", 3, "attr-defined", "no such verb")]


def test_each_checker_has_its_own_name_for_an_error() -> None:
    assert expected_errors(PROGRAM, "mypy") == [Error("use.py", 1, "arg-type"), Error("use.py", 3, "attr-defined")]
    assert expected_errors(PROGRAM, "pyright") == [Error("use.py", 1, "reportArgumentType"), Error("use.py", 3, "reportNo")]


def test_exactly_the_expected_errors_are_a_success() -> None:
    verdict = judge(expected_errors(PROGRAM, "mypy"), FOUND)
    assert (verdict.expected, verdict.missed, verdict.unexpected) == (2, (), ())
    assert figures_of({"mypy": verdict}, 100.0) == {"completeness": 100, "expected_errors": 2, "missed": 0, "unexpected": 0}


def test_an_error_that_is_not_found_is_missed() -> None:
    verdict = judge(expected_errors(PROGRAM, "mypy"), FOUND[:1])
    assert verdict.missed == (Error("use.py", 3, "attr-defined"),)
    assert figures_of({"mypy": verdict}, 100.0)["missed"] == 1


def test_another_error_on_the_same_line_does_not_replace_it() -> None:
    verdict = judge(expected_errors(PROGRAM, "mypy"), [FOUND[0], Error("use.py", 3, "misc", "cannot infer")])
    assert verdict.missed == (Error("use.py", 3, "attr-defined"),)
    assert verdict.unexpected == ()


def test_an_error_elsewhere_is_unexpected() -> None:
    elsewhere = Error("use.py", 2, "arg-type", "out is not a topic")
    verdict = judge(expected_errors(PROGRAM, "mypy"), [*FOUND, elsewhere])
    assert (verdict.missed, verdict.unexpected) == ((), (elsewhere,))
    assert str(elsewhere) == "use.py:2: arg-type: out is not a topic"


def test_completeness_is_not_rounded_up() -> None:
    assert figures_of({}, 99.999)["completeness"] == 99.99


@pytest.mark.parametrize("mark", ["# error: arg-type", "# error arg-type | reportArgumentType", "# error: | reportArgumentType"])
def test_an_invalid_mark_is_refused(mark: str) -> None:
    with pytest.raises(ValueError, match=r"use.py:1: a mark is"):
        expected_errors({"use.py": f"stream.to(5)  {mark}\n"}, "mypy")
