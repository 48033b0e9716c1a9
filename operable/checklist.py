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

ITEMS = 34
MARKER = "security"
NOT_HERE = "not here"
"""How a reason begins for which an item has no test."""
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "security.md"


class Checklist:
    """A plug-in for pytest that notes what becomes of the tests of each item.

    An item counts as passed only if a test carries it, and all that do have passed; one that was skipped has not.
    """

    def __init__(self) -> None:
        self._items: dict[str, list[int]] = {}
        self._well: dict[str, bool] = {}

    @pytest.hookimpl(trylast=True)  # when it is known which of them are run
    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Note which tests carry which items."""
        for test in items:
            numbers = [int(marker.args[0]) for marker in test.iter_markers(MARKER)]
            if numbers:
                self._items[test.nodeid] = numbers

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how each part of a test went."""
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
    """Why some items are not tested, or not in full, as the document has it."""
    rows = re.findall(r"^\| (\d+) \|[^|]*\| (.*) \|$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {int(number): text for number, text in rows}


def report(found: dict[int, bool], why: dict[int, str]) -> dict[str, Any]:
    """How many items have passed, why others are not tested, and which have failed or have no reason to be missing.

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
    """Run tests by pytest's own arguments and report on the items that they carry.

    The tests that need Java take minutes: `run(["-m", "security", "tests"])` runs all there are.
    """
    checklist = Checklist()
    pytest.main([*arguments], plugins=[checklist])
    return report(checklist.passed(), reasons())
