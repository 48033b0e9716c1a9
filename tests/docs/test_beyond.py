"""Every Python block of the tutorial, the reference and the pages beyond Kafka Streams, run in order: each builds on the last."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


PAGES = (
    "async",
    "columns",
    "dead-letters",
    "evolution",
    "global-state",
    "logs-and-traces",
    "metrics",
    "notebooks",
    "plugins",
    "reference",
    "schema-registry",
    "sources-and-sinks",
    "side-outputs",
    "tutorial",
)


@pytest.mark.parametrize("page", [f"{name}.md" for name in PAGES])
def test_the_page_runs(page: str) -> None:
    names: dict[str, object] = {"__name__": page.removesuffix(".md")}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, f"docs/{page}", "exec", dont_inherit=True), names)
