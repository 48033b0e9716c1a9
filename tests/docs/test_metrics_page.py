"""The table of metrics lists what an application exposes; PENSTOCK_REWRITE_GOLDEN=1 rewrites it, like golden files."""

from __future__ import annotations

import os
from pathlib import Path

from tests.unit.observation.exposed import all_metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
MARK = "<!-- the table is checked against what an application exposes -->\n\n"


def table() -> str:
    lines = ["| metric | kind | labels | what it is |", "|---|---|---|---|"]
    for family in all_metrics().collect():
        name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = sorted({label for sample in family.samples for label in sample.labels if label != "le"})
        lines.append(f"| `{name}` | {family.type} | {', '.join(labels)} | {family.documentation.rstrip('.')} |")
    return "\n".join(lines) + "\n"


def test_the_page_describes_every_metric() -> None:
    before, mark, found = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, "the page no longer has the mark before its table"
    if os.environ.get("PENSTOCK_REWRITE_GOLDEN"):
        PAGE.write_text(before + mark + table(), encoding="utf-8")
    else:
        assert found == table()
