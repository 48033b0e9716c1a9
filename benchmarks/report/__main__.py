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
BEGIN, END = "<!-- figures: written by python -m benchmarks.report -->", "<!-- end of figures -->"


def with_figures(page: str, figures: str) -> str:
    """The page with these figures in place of the old ones."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for figures: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{figures}\n{END}{after}"


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
    page = options.page.read_text(encoding="utf-8")
    options.page.write_text(with_figures(page, f"{markdown(content)}\n{images}\n"), encoding="utf-8")
    print(f"{options.page}: figures of {options.report}; {len(drawn)} plots in {options.images}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
