"""`python -m verification.chaos`: the command line of the campaign."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verification.chaos import campaign
from verification.chaos.rows import GUARDED_BY, QUICK_GUARDS, ROWS
from verification.chaos.rows.row import FULL, LOCAL, QUICK

GUARDS: dict[str, tuple[str, ...]] = {FULL: tuple(GUARDED_BY), QUICK: QUICK_GUARDS, LOCAL: ()}


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign, or a part of it; the exit code is 0 if nothing is violated."""
    parser = argparse.ArgumentParser(prog="python -m verification.chaos")
    parser.add_argument(
        "--campaign",
        choices=(FULL, QUICK, LOCAL),
        default=FULL,
        help="everything; a part of it, in about six minutes; or 2,000 kills on the local engine",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=None, metavar="ROW", help="run these rows only, and no guards")
    parser.add_argument(
        "--without", nargs="*", default=None, metavar="GUARD", help="run without these guards, and only the rows that are named"
    )
    parser.add_argument("--report", type=Path, default=Path("reports/chaos.json"))
    parser.add_argument("--keep", action="store_true", help="keep the logs and files of all rows")
    parser.add_argument("--list", action="store_true", help="list the rows and the guards")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join([*(row.name for row in ROWS), *(f"without {guard}: {row}" for guard, row in GUARDED_BY.items())]))
        return 0
    by_name = {row.name: row for row in ROWS}
    if options.only is None and options.without is None:
        rows = [row for row in ROWS if options.campaign in row.campaigns]
        guards = GUARDS[options.campaign]
    else:
        rows, guards = [by_name[name] for name in options.only or ()], tuple(options.without or ())
    rows_of_guards = {guard: by_name[GUARDED_BY[guard]] for guard in guards}
    report = campaign.run(rows, rows_of_guards, options.seed, options.report, keep=options.keep)
    print(f"{report.kills} kills, {report.violations} violations, {report.seconds:.0f} s; see {options.report}")
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
