"""`python -m verification.simulation`: worlds of a seed, then bugs that are planted in the driver."""

from __future__ import annotations

import argparse
import sys

from verification.simulation import mutants, session
from verification.simulation.session import Place


def main(arguments: list[str] | None = None) -> int:
    """Run worlds, or one again, or only planted bugs; the exit code is 0 if nothing is violated and all bugs are caught."""
    parser = argparse.ArgumentParser(prog="python -m verification.simulation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lives", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, help="end after so long, however many lives there were")
    parser.add_argument("--world", help="one world again, as a violation names it")
    parser.add_argument("--no-planted", action="store_true", help="plant no bugs afterwards")
    parser.add_argument("--only-planted", nargs="?", const="", metavar="NAME", help="plant bugs only, or one of them")
    parser.add_argument("--first", action="store_true", help="print the first world that is violated as JSON, and end")
    parser.add_argument("--show", type=int, default=3, help="how many violations to print")
    options = parser.parse_args(arguments)
    if options.world is not None:
        [verdict] = session.verdicts(iter([Place.read(options.world)]))
        print(verdict)
        return 0 if verdict.violation is None else 1
    if options.first:
        return mutants.print_first(options.seed, options.seconds or mutants.PATIENCE_S)
    if options.only_planted is None and session.main(options.seed, options.lives, options.seconds, options.show):
        return 1
    return 0 if options.no_planted or mutants.plant_all(options.seed, options.only_planted or None) else 1


if __name__ == "__main__":
    sys.exit(main())
