"""`python -m verification.writers`: faults and figures of several writers in one transaction; writes reports/writers.json."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from verification.harness.broker import Broker, Cluster
from verification.writers import faults, speed

REPORT = Path("reports/writers.json")
TIMES = {
    "killed-writers": (3, 15),
    "late-writers": (2, 5),
    "lost-answers": (4, 10),
    "new-drivers": (2, 5),
    "failovers": (1, 6),
    "overflown-epochs": (0, 1),
    "repeated-writes": (1, 2),
}
"""How often each fault happens in a quick campaign, and in a full one."""


def main() -> int:
    """Run the faults, then the figures; return 1 if something differs, or a fault was not seen."""
    parser = argparse.ArgumentParser(prog="python -m verification.writers")
    parser.add_argument("--quick", action="store_true", help="few faults, and no figures")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=[*TIMES, "speed"], default=[*TIMES, "speed"])
    options = parser.parse_args()
    report: dict[str, Any] = {"faults": {}, "guards_off": {}}
    began = time.monotonic()
    with Cluster() as brokers:
        for name, times in TIMES.items():
            wanted = times[0 if options.quick else 1]
            if name in options.only and wanted:
                outcome = faults.run(name, wanted, options.seed, brokers)
                print(f"{name}: {outcome.fired} of {wanted}; {outcome.differences or 'no difference'}")
                report["guards_off" if name in faults.GUARDS_OFF else "faults"][name] = outcome._asdict()
    if "speed" in options.only and not options.quick:
        with Broker(heap="1g") as broker:
            report["rows_per_s"] = speed.rows_per_second(broker.bootstrap_servers, (1, 2, 4), 1_000_000, 3)
            report["commits"] = speed.commit_times(broker.bootstrap_servers, (8, 32, 128), (320, 2_560), 5)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    differences = sum(len(outcome["differences"]) for outcome in report["faults"].values())
    unseen = [name for name, outcome in report["faults"].items() if outcome["fired"] < TIMES[name][0 if options.quick else 1]]
    unguarded = [name for name, outcome in report["guards_off"].items() if not outcome["differences"]]
    print(f"rows/s {report.get('rows_per_s')}; commits {report.get('commits')}")
    print(
        f"{sum(outcome['fired'] for outcome in report['faults'].values())} faults, {differences} differences, "
        f"not seen: {unseen or 'none'}, guards that change nothing: {unguarded or 'none'}, {time.monotonic() - began:.0f} s"
    )
    return 1 if differences or unseen or unguarded else 0


if __name__ == "__main__":
    sys.exit(main())
