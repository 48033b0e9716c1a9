"""`python -m verification.cluster`: the campaign on a cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verification.chaos import campaign
from verification.cluster.rows import FULL, GUARDED_BY, QUICK, ROWS
from verification.harness.broker import NEVER_KILLED


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign, or a part of it; the exit code is 0 if nothing is violated."""
    parser = argparse.ArgumentParser(prog="python -m verification.cluster")
    parser.add_argument("--quick", action="store_true", help="a few faults of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--without", nargs="*", choices=GUARDED_BY, default=[], help="run its row without a guard, too")
    parser.add_argument("--report", type=Path, default=Path("reports/cluster-chaos.json"))
    parser.add_argument("--keep", action="store_true", help="keep the logs and files of all rows")
    options = parser.parse_args(arguments)
    which = QUICK if options.quick else FULL
    rows = [ROWS[name][which] for name in options.only]
    guards = {guard: ROWS[row][QUICK] for guard, row in GUARDED_BY.items() if guard in options.without}
    report = campaign.run(rows, guards, options.seed, options.report, keep=options.keep, broker_settings=NEVER_KILLED)
    print(f"{report.kills} kills, {report.violations} violations, {report.seconds:.0f} s; see {options.report}")
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
