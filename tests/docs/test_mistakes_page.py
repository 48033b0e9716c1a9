"""The page of mistakes has a row for every test of one, by its name, and no other."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "mistakes.md").read_text(encoding="utf-8")
NO_MISTAKES = {
    "a mapper that returns a text of three letters is told so too",
    "an error within a function is not mistaken for its result",
    "an initial value that cannot change may be shared",
    "settings of an application are read before it starts",
    "what else cannot be pickled is told without a node",
}
"""Tests of how errors are told, which are about no mistake of their own."""


def provoked() -> set[str]:
    files = [file for kind in ("unit", "jvm") for file in (TESTS / kind / "mistakes").glob("test_*.py")]
    names = [name for file in files for name in re.findall(r"^def test_(\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)]
    assert len(names) == len(set(names))
    return {name.replace("_", " ") for name in names}


def test_every_mistake_is_on_the_page_and_is_provoked() -> None:
    rows = re.findall(r"^\| ((?!mistake|-)[^|]+) \|", PAGE, re.MULTILINE)
    assert len(rows) == len(set(rows)) >= 30
    assert set(rows) == provoked() - NO_MISTAKES
