"""`python -m verification.integration`: the command line of the suite."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verification.integration import campaign
from verification.integration.scenarios import SCENARIOS

HOSTS = ("in-process", "spark", "local")
ON_REQUEST = ("cluster",)


def main(arguments: list[str] | None = None) -> int:
    """Run the suite, or a part of it; the exit code is 0 if everything agrees with the test driver."""
    parser = argparse.ArgumentParser(prog="python -m verification.integration")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one combination of some topologies on each host")
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME", help="run only topologies whose name contains this")
    parser.add_argument("--hosts", nargs="*", choices=(*HOSTS, *ON_REQUEST), default=HOSTS)
    parser.add_argument("--show", type=int, default=2, help="how many differences of a topology to print")
    parser.add_argument("--report", type=Path, default=Path("reports/integration.json"))
    options = parser.parse_args(arguments)
    chosen = [scenario for scenario in SCENARIOS if options.only is None or any(name in scenario.name for name in options.only)]
    if not chosen:
        parser.error(f"no topology has a name that contains {' or '.join(options.only)}")
    return campaign.run(chosen, options.seed, options.quick, options.hosts, options.report, options.show)


if __name__ == "__main__":
    sys.exit(main())
