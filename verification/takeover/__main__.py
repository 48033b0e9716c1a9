"""`python -m verification.takeover`: ends active instances, and measures how long it takes until another one has committed."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from verification.chaos import campaign
from verification.takeover.figures import summary
from verification.takeover.rows import Figures, cluster_rows, rows_on

KILLS = 20


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign; the exit code is 0 if nothing is violated."""
    parser = argparse.ArgumentParser(prog="python -m verification.takeover")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--engine", choices=("local", "spark", "cluster"), default="local")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=None, metavar="ROW", help="run these rows only")
    parser.add_argument("--report", type=Path, default=Path("reports/takeover.json"))
    parser.add_argument("--keep", action="store_true", help="keep the logs and files of all rows")
    options = parser.parse_args(arguments)
    figures: Figures = {}
    make = cluster_rows if options.engine == "cluster" else partial(rows_on, options.engine)
    rows = make(options.kills, figures)
    chosen = [row for row in rows if options.only is None or row.name in options.only]
    report = campaign.run(chosen, {}, options.seed, options.report, keep=options.keep)
    found = {name: summary(taken) for name, taken in figures.items()}
    options.report.write_text(json.dumps({"takeover_s": found, **json.loads(options.report.read_text())}, indent=2) + "\n")
    print(f"{report.kills} kills, {report.violations} violations, {report.seconds:.0f} s; see {options.report}")
    for name, figure in found.items():
        print(_line(name, figure))
    return 0 if report.is_good else 1


def _line(name: str, figure: dict[str, Any]) -> str:
    steps = ", ".join(f"{step} {of['median']:.3f}" for step, of in figure["steps"].items())
    return f"takeover_s {name}: median {figure['median']:.3f}, max {figure['max']:.3f} of {figure['count']} (medians: {steps})"


if __name__ == "__main__":
    sys.exit(main())
