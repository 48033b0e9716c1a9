"""`python -m verification.conformance run | mutants | epochs | epochs-mutants | parity`: the command line."""

from __future__ import annotations

import argparse
import sys

from verification.conformance import mutants, parity, session
from verification.conformance.epochs import mutants as epochs_mutants
from verification.conformance.epochs import session as epochs_session
from verification.conformance.oracle_process import OracleError


def _add_cases(door: argparse.ArgumentParser, name: str) -> None:
    door.add_argument("--seed", type=int, default=1)
    door.add_argument("--cases", type=int, default=2000)
    door.add_argument("--case", help=f"show one case in detail: {name}")
    door.add_argument("--shrink", action="store_true", help="with --case: shrink it first")
    door.add_argument("--show", type=int, default=20, help="the maximum number of differences to print")


def _add_mutants(door: argparse.ArgumentParser) -> None:
    door.add_argument("--seed", type=int, default=1)
    door.add_argument("--only", help="plant this mutant only")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit code is 0 if it succeeds."""
    parser = argparse.ArgumentParser(prog="python -m verification.conformance")
    doors = parser.add_subparsers(dest="door", required=True)
    run = doors.add_parser("run", help="compare Penstock with Kafka Streams on generated and fixed cases")
    _add_cases(run, "an index of the seed, or the name of a fixed case")
    run.add_argument("--no-regressions", action="store_true", help="run generated cases only")
    mutant = doors.add_parser("mutants", help="plant bugs, each of which must be caught")
    _add_mutants(mutant)
    epochs = doors.add_parser("epochs", help="compare the in-process epoch host with the test driver on generated cases")
    _add_cases(epochs, "seed/index")
    epochs.add_argument("--no-mutants", action="store_true", help="plant no bugs afterwards")
    planted = doors.add_parser("epochs-mutants", help="plant bugs in lanes, shards and restores, each of which must be caught")
    _add_mutants(planted)
    doors.add_parser("parity", help="map Kafka Streams' public methods, or give a reason for none", add_help=False)
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
