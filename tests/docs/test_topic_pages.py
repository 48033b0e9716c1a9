"""Every Python block of the pages about one topic each, run in order; those of a section, or of a page, build on earlier ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("joins", "recipes", "serdes", "testing", "windows")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs(name: str) -> None:
    blocks = BLOCK.findall((DOCS / f"{name}.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 2
    names: dict[str, object] = {"__name__": name}
    for block in blocks:
        exec(compile(block, f"docs/{name}.md", "exec", dont_inherit=True), names)


@pytest.mark.parametrize("name", ["joins", "recipes", "windows"])
def test_a_section_stands_alone(name: str) -> None:
    for section in re.split(r"^## ", (DOCS / f"{name}.md").read_text(encoding="utf-8"), flags=re.MULTILINE):
        names: dict[str, object] = {"__name__": name}
        for block in BLOCK.findall(section):
            exec(compile(block, f"docs/{name}.md", "exec", dont_inherit=True), names)
