"""`python -m verification.examples`: every example on a real broker, with the local engine, beside the test driver.

Writes reports/examples.json and prints what differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from verification.examples import trial
from verification.examples.cases import CASES, QUICK
from verification.harness.broker import NEVER_KILLED, Broker


def main(arguments: list[str] | None = None) -> int:
    """Run the examples, or some of them; the exit code is 0 if nothing differs."""
    parser = argparse.ArgumentParser(prog="python -m verification.examples")
    parser.add_argument("--quick", action="store_true", help=f"only {' and '.join(QUICK)}")
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME", help="only examples whose name contains this")
    parser.add_argument("--report", type=Path, default=Path("reports/examples.json"))
    options = parser.parse_args(arguments)
    only = options.only or (QUICK if options.quick else ("",))
    chosen = [case for case in CASES if any(name in case.name for name in only)]
    if not chosen:
        parser.error(f"no example has a name that contains {' or '.join(only)}; there are {', '.join(c.name for c in CASES)}")
    begun = time.monotonic()
    results: dict[str, trial.Result] = {}
    with tempfile.TemporaryDirectory(prefix="examples-") as directory, Broker(settings=NEVER_KILLED) as broker:
        for case in chosen:
            results[case.name] = result = trial.run(case, broker, Path(directory))
            print(f"{case.name}: {sum(result.outputs.values())} records, {len(result.differences)} differences", flush=True)
            for difference in result.differences:
                print(f"  {difference}")
    found = sum(len(result.differences) for result in results.values())
    report = {
        "examples": {name: asdict(result) for name, result in results.items()},
        "differences": found,
        "seconds": round(time.monotonic() - begun),
    }
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"{len(results)} examples, {found} differences, {report['seconds']} s; see {options.report}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
