"""`python -m conformance run | mutants | parity`: the doors of the conformance tests."""

from __future__ import annotations

import argparse
import sys

from conformance import mutants, parity, session
from conformance.oracle_process import OracleError


def main(arguments: list[str] | None = None) -> int:
    """Run one of the doors; the exit code says whether it holds."""
    parser = argparse.ArgumentParser(prog="python -m conformance")
    doors = parser.add_subparsers(dest="door", required=True)
    run = doors.add_parser("run", help="generated and fixed cases, Penstock beside Kafka Streams")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--cases", type=int, default=2000)
    run.add_argument("--case", help="show one case in detail: an index of the seed, or the name of a fixed case")
    run.add_argument("--shrink", action="store_true", help="with --case: make it small first")
    run.add_argument("--show", type=int, default=20, help="how many differences to print")
    run.add_argument("--no-regressions", action="store_true", help="generated cases only")
    mutant = doors.add_parser("mutants", help="planted bugs, each of which must be caught")
    mutant.add_argument("--seed", type=int, default=1)
    mutant.add_argument("--only", help="one mutant by name")
    doors.add_parser("parity", help="Kafka Streams' public methods: mapped, or never with a reason", add_help=False)
    options, rest = parser.parse_known_args(arguments)
    if options.door == "parity":
        return parity.main(rest)
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    try:
        if options.door == "mutants":
            return mutants.main(options.seed, options.only)
        if options.case is not None:
            return session.show(options.seed, options.case, small=options.shrink)
        return session.main(options.seed, options.cases, show=options.show, regressions=not options.no_regressions)
    except OracleError as error:
        print(f"the oracle did not run: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
