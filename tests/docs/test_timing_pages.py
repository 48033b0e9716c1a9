"""Every Python block of the pages about watermarks, timers, schedules, security and the dashboard, each on its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    (f"{page}-{number}", block)
    for page in ("timers.md", "schedules.md", "watermarks.md", "security.md", "dashboard.md")
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL))
]


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("block", [block for _, block in BLOCKS], ids=[name for name, _ in BLOCKS])
def test_the_example_runs(block: str) -> None:
    exec(compile(block, "docs", "exec", dont_inherit=True), {"__name__": "docs"})
