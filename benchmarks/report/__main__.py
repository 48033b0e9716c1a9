"""`python -m benchmarks.report`: puts the figures of reports/bench.json into docs/performance.md, its plots into docs/images."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.report.plots import plots
from benchmarks.report.tables import markdown
from verification.harness.processes import ROOT

PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
PICTURES, FIGURES = "pictures", "figures"
"""The parts of the page that are written: pictures first, tables further down."""


def place(part: str) -> tuple[str, str]:
    """Return what a part of the page begins and ends with."""
    return f"<!-- {part}: written by python -m benchmarks.report -->", f"<!-- end of {part} -->"


def with_part(page: str, part: str, text: str) -> str:
    """The page with this text in place of the old one."""
    first, last = place(part)
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no place for {part}: {first} … {last}")
    return f"{before}{first}\n\n{text}\n{last}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Write the page and the plots."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report")
    parser.add_argument("report", type=Path, nargs="?", default=Path("reports/bench.json"))
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--images", type=Path, default=IMAGES)
    options = parser.parse_args(arguments)
    content = json.loads(options.report.read_text(encoding="utf-8"))
    drawn = dict(plots(content))
    for name, svg in drawn.items():
        (options.images / name).write_text(svg, encoding="utf-8")
    images = "\n\n".join(f"![{name.removesuffix('.svg')}](images/{name})" for name in drawn)
    page = with_part(options.page.read_text(encoding="utf-8"), PICTURES, f"{images}\n")
    options.page.write_text(with_part(page, FIGURES, f"{markdown(content)}\n"), encoding="utf-8")
    print(f"{options.page}: figures of {options.report}; {len(drawn)} plots in {options.images}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
