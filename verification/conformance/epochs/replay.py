"""`python -m verification.conformance.epochs.replay SOURCE CASES`: the first case that differs with Penstock from SOURCE.

CASES is JSON: `seed`, `count`, and the ids of cases to be `skipped`.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import penstock
from verification.conformance.epochs import generator
from verification.conformance.epochs.compare import differences
from verification.conformance.epochs.host import play
from verification.conformance.epochs.spec import EpochCase


def main(source: str, cases: str) -> int:
    """See the module."""
    if not Path(str(penstock.__file__)).is_relative_to(source):
        print(f"penstock was imported from {penstock.__file__}, not from {source}", file=sys.stderr)
        return 2
    logging.disable(logging.CRITICAL)
    asked = json.loads(cases)
    found = None
    for case in generator.generate(asked["seed"], asked["count"]):
        if case.id not in asked["skipped"] and _differs(case):
            found = case.id
            break
    print(json.dumps(found))
    return 0


def _differs(case: EpochCase) -> bool:
    """Whether a case differs; a case that cannot run differs too."""
    try:
        return bool(differences(case, play(case)))
    except Exception:  # noqa: BLE001 - a mutant may break anything
        return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
