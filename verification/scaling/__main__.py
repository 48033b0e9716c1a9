"""`python -m verification.scaling`: what a load needs, and which way to commit carries it.

Writes reports/scaling.json and prints its figures last. With `--explore` it also explores the model of groups with a decision
record, and plants bugs in it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from verification.scaling import exploration, page, stored
from verification.scaling.constants import Constants, measured
from verification.scaling.designs import DESIGNS, breaking, sized, tightest
from verification.scaling.exploration import Explored
from verification.scaling.sizing import Host, Load, size

REPORT = Path("reports/scaling.json")
MEASURED_ROWS = 1_000_000


def main(arguments: list[str] | None = None) -> int:
    """Print the sizing; the exit code is 0 unless the model breaks a rule, or misses a planted bug."""
    options = _options(arguments)
    load = Load(**{one.name: getattr(options, one.name) for one in fields(Load)})
    host = Host(**{one.name: getattr(options, f"host_{one.name}") for one in fields(Host)})
    constants = replace(measured(side="penstock-columns" if options.columns else "penstock"), **dict(options.set))
    report: dict[str, Any] = _sized(load, constants, host)
    if options.measure:
        report["stored"] = stored.measure(MEASURED_ROWS)
    if options.page:
        text = page.PAGE.read_text(encoding="utf-8")
        page.PAGE.write_text(page.with_figures(text, page.figures(measured(), Host())), encoding="utf-8")
    is_good = True
    if options.explore:
        report["groups"], is_good = _explored()
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: figures for name, figures in report.items() if name not in {"load", "host", "constants"}}, indent=1))
    return 0 if is_good else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m verification.scaling", description="docs/scaling.md explains all of it.")
    _add(parser, Load, "--")
    _add(parser, Host, "--host-")
    parser.add_argument("--columns", action="store_true", help="column expressions in place of functions")
    parser.add_argument("--set", action="append", type=_constant, default=[], metavar="NAME=VALUE", help="another constant")
    parser.add_argument("--measure", action="store_true", help="also measure what rows take in a lane's file")
    parser.add_argument("--explore", action="store_true", help="also explore the model of groups with a decision record")
    parser.add_argument("--page", action="store_true", help="also write the figures of docs/scaling.md")
    parser.add_argument("--report", type=Path, default=REPORT)
    return parser.parse_args(arguments)


def _add(parser: argparse.ArgumentParser, kind: type[Load | Host], prefix: str) -> None:
    for one in fields(kind):
        name = prefix + one.name.replace("_", "-")
        if one.type == "bool":
            parser.add_argument(name, action="store_true")
        else:
            parser.add_argument(name, type=int if one.type == "int" else float, default=one.default)


def _constant(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    known = [one.name for one in fields(Constants)]
    if name not in known:
        raise argparse.ArgumentTypeError(f"there is no constant {name!r}; there are {', '.join(known)}")
    return name, float(value)


def _sized(load: Load, constants: Constants, host: Host) -> dict[str, Any]:
    sizing = size(load, constants, host)
    _print(page.sizing_rows(sizing))
    _print(page.design_rows(load, constants, host))
    designs: dict[str, Any] = {}
    for design in DESIGNS:
        limit = tightest(design, sized(design, load, constants, host), constants, host)
        found = breaking(design, load, constants, host)
        designs[design.name] = {
            "status": design.status,
            "fits": limit.use <= 1,
            "tightest": limit.name,
            "use": round(limit.use, 3),
            "breaks_at_records_per_s": round(found.records),
            "breaks_by": found.limit.name,
        }
    needed = {name: value for name, value in asdict(sizing).items() if name != "load"}
    return {"load": asdict(load), "host": asdict(host), "constants": asdict(constants), "sizing": needed, "designs": designs}


def _print(rows: Sequence[page.Row]) -> None:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(flush=True)


def _explored() -> tuple[dict[str, Any], bool]:
    """Explore all sizes, then plant each bug; return the figures, and whether all is as it must be."""
    sizes = []
    for one in exploration.SIZES:
        found = exploration.explore(one)
        print(f"{one}: {found.worlds:,} worlds, {found.violation or 'no violation'}, {found.seconds:.0f} s", flush=True)
        sizes.append(found)
    planted = exploration.planted()
    for bug, found in planted.items():
        print(f"{bug.value}: {found.violation or 'NOT CAUGHT'}, after {len(found.way)} moves", flush=True)
    figures = {
        "sizes": [_figures(one) for one in sizes],
        "planted": {bug.name: {"by": one.violation, "way": one.way} for bug, one in planted.items()},
        "caught": sum(one.violation is not None for one in planted.values()),
        "of": len(planted),
    }
    is_good = all(one.violation is None for one in sizes) and figures["caught"] == figures["of"]
    return figures, is_good


def _figures(found: Explored) -> dict[str, Any]:
    counts = {name: getattr(found.size, name) for name in ("groups", "epochs", "drivers", "timeouts", "retries")}
    return {
        **counts,
        "worlds": found.worlds,
        "moves": found.moves,
        "holes": found.holes,
        "violation": found.violation,
        "way": found.way,
        "seconds": round(found.seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
