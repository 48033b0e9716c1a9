"""`python -m conformance run | mutants | epochs | epochs-mutants | parity`: the doors of the conformance tests."""

from __future__ import annotations

import argparse
import sys

from conformance import mutants, parity, session
from conformance.epochs import mutants as epochs_mutants
from conformance.epochs import session as epochs_session
from conformance.oracle_process import OracleError


def _add_cases(door: argparse.ArgumentParser, name: str) -> None:
    door.add_argument("--seed", type=int, default=1)
    door.add_argument("--cases", type=int, default=2000)
    door.add_argument("--case", help=f"show one case in detail: {name}")
    door.add_argument("--shrink", action="store_true", help="with --case: make it small first")
    door.add_argument("--show", type=int, default=20, help="how many differences to print")


def _add_mutants(door: argparse.ArgumentParser) -> None:
    door.add_argument("--seed", type=int, default=1)
    door.add_argument("--only", help="one mutant by name")


def main(arguments: list[str] | None = None) -> int:
    """Run one of the doors; the exit code says whether it holds."""
    parser = argparse.ArgumentParser(prog="python -m conformance")
    doors = parser.add_subparsers(dest="door", required=True)
    run = doors.add_parser("run", help="generated and fixed cases, Penstock beside Kafka Streams")
    _add_cases(run, "an index of the seed, or the name of a fixed case")
    run.add_argument("--no-regressions", action="store_true", help="generated cases only")
    mutant = doors.add_parser("mutants", help="planted bugs, each of which must be caught")
    _add_mutants(mutant)
    epochs = doors.add_parser("epochs", help="generated cases, the in-process epoch host beside the test driver")
    _add_cases(epochs, "seed/index")
    epochs.add_argument("--no-mutants", action="store_true", help="no planted bugs afterwards")
    planted = doors.add_parser("epochs-mutants", help="planted bugs of lanes, shards and restores, each of which must be caught")
    _add_mutants(planted)
    doors.add_parser("parity", help="Kafka Streams' public methods: mapped, or never with a reason", add_help=False)
    options, rest = parser.parse_known_args(arguments)
    if options.door == "parity":
        return parity.main(rest)
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if options.door == "epochs":
        if options.case is not None:
            return epochs_session.show(options.case, small=options.shrink)
        is_right = epochs_session.main(options.seed, options.cases, show=options.show)
        return 0 if is_right and (options.no_mutants or epochs_mutants.plant_all(options.seed, [])) else 1
    if options.door == "epochs-mutants":
        return epochs_mutants.main(options.seed, options.only)
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
