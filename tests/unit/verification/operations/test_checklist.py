"""The checklist counts an item only if a test carries it and all such tests pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from verification.operations.checklist import ITEMS, Checklist, reasons, report

TESTS = """
import pytest

@pytest.mark.security(1)
@pytest.mark.security(2)
def test_well(): pass

@pytest.mark.security(2)
def test_badly(): assert False

@pytest.mark.security(3)
@pytest.mark.parametrize("n", [1, 2])
class TestSome:
    def test_well(self, n): pass

@pytest.mark.security(4)
def test_left_out(): pytest.skip("not now")

@pytest.fixture
def broken(): raise ValueError

@pytest.mark.security(5)
def test_broken(broken): pass

def test_of_nothing(): assert False
"""


def found_in(directory: Path, text: str, *arguments: str) -> dict[int, bool]:
    (directory / "test_some.py").write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers = security(item): of the checklist\n")
    checklist = Checklist()
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:cov", "--import-mode=importlib"]
    pytest.main(
        [*options, "--rootdir", str(directory), "-c", str(directory / "pytest.ini"), str(directory), *arguments],
        plugins=[checklist],
    )
    return checklist.passed()


def test_items_pass_if_all_their_tests_pass(tmp_path: Path) -> None:
    assert found_in(tmp_path, TESTS) == {1: True, 2: False, 3: True, 4: False, 5: False}


def test_deselected_tests_do_not_count(tmp_path: Path) -> None:
    assert found_in(tmp_path, TESTS, "-k", "TestSome") == {3: True}


def test_the_report() -> None:
    why = {2: "tests/two.py", 4: "not here: why", 5: "tests/five.py"}
    said = report({1: True, 2: False, 3: True}, why)
    assert (said["passed"], said["of"]) == (2, 34)
    assert said["reasons"] == {4: "not here: why"}
    assert said["failed"] == [item for item in range(1, ITEMS + 1) if item not in {1, 3, 4}]


def test_reasons_are_read_from_the_document() -> None:
    known = reasons()
    assert known.keys() >= set(range(1, ITEMS + 1))
    assert all(known.values())
