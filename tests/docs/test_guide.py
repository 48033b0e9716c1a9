"""Every Python block of the guide, run in order; the blocks of a section build on earlier ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", GUIDE, flags=re.MULTILINE)[1:]


def test_every_section_has_an_example() -> None:
    assert len(SECTIONS) >= 7
    assert all("```python" in section for section in SECTIONS)


@pytest.mark.parametrize("section", SECTIONS, ids=[section.splitlines()[0] for section in SECTIONS])
def test_the_section_runs(section: str) -> None:
    names: dict[str, object] = {"__name__": "guide"}
    source = GUIDE if section.startswith("What a topology") else section
    for block in re.findall(r"```python\n(.*?)```", source, re.DOTALL):
        exec(compile(block, "docs/guide.md", "exec", dont_inherit=True), names)
