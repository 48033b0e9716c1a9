"""Every Python block of the pages about what Kafka Streams does not have, run in order; a page's blocks continue one another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    "page", ["async.md", "dead-letters.md", "global-state.md", "logs-and-traces.md", "plugins.md", "side-outputs.md"]
)
def test_the_page_runs(page: str) -> None:
    names: dict[str, object] = {"__name__": page.removesuffix(".md")}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, f"docs/{page}", "exec", dont_inherit=True), names)
