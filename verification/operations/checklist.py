"""The security checklist: which of its items are tested and pass, and why the others are not.

A test carries the number of its item (`@pytest.mark.security(17)`); reasons are in the table of `docs/security.md`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from verification.harness.processes import ROOT

ITEMS = 34
MARKER = "security"
NOT_HERE = "not here"
"""The first words of the reason of an item without a test."""
DOCUMENT = ROOT / "docs" / "security.md"


class Checklist:
    """A pytest plug-in that records the outcome of the tests of each item.

    An item has passed only if a test carries it and all such tests have passed; a skipped test has not.
    """

    def __init__(self) -> None:
        self._items: dict[str, list[int]] = {}
        self._well: dict[str, bool] = {}

    @pytest.hookimpl(trylast=True)  # after the tests to run are selected
    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Record which tests carry which items."""
        for test in items:
            numbers = [int(marker.args[0]) for marker in test.iter_markers(MARKER)]
            if numbers:
                self._items[test.nodeid] = numbers

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of each phase of a test."""
        if report.nodeid in self._items:
            self._well[report.nodeid] = self._well.get(report.nodeid, True) and report.outcome == "passed"

    def passed(self) -> dict[int, bool]:
        """By item: whether all of its tests have passed. Items without tests are missing."""
        outcomes: defaultdict[int, list[bool]] = defaultdict(list)
        for test, numbers in self._items.items():
            for number in numbers:
                outcomes[number].append(self._well.get(test, False))
        return {number: all(found) for number, found in sorted(outcomes.items())}


def reasons(document: Path = DOCUMENT) -> dict[int, str]:
    """The document's reasons why some items are not tested, or not fully."""
    rows = re.findall(r"^\| (\d+) \|[^|]*\| (.*) \|$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {int(number): text for number, text in rows}


def report(found: dict[int, bool], why: dict[int, str]) -> dict[str, Any]:
    """The number of items that passed, the reasons of untested ones, and those that failed or lack both test and reason.

    Example:
        >>> report({14: True, 15: False}, {15: "tests/x.py", 16: "not here: there is none"})["reasons"]
        {16: 'not here: there is none'}
    """
    untested = {item: why.get(item, "") for item in range(1, ITEMS + 1) if item not in found}
    explained = {item: text for item, text in untested.items() if text.startswith(NOT_HERE)}
    return {
        "passed": sum(found.values()),
        "of": ITEMS,
        "reasons": explained,
        "failed": sorted([*(untested.keys() - explained.keys()), *(item for item in found if not found[item])]),
    }


def run(arguments: Sequence[str]) -> dict[str, Any]:
    """Run tests with pytest's arguments and report on the items that they carry.

    The tests that need Java take minutes: `run(["-m", "security", "tests"])` runs all of them.
    """
    checklist = Checklist()
    pytest.main([*arguments], plugins=[checklist])
    return report(checklist.passed(), reasons())
