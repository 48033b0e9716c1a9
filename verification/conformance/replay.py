"""`python -m verification.conformance.replay SOURCE ANSWERS [--stop]`: run answered cases through the Penstock in SOURCE.

Prints the ids of the cases that differ, as JSON; with --stop, only the first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import penstock
from verification.conformance.compare import differences
from verification.conformance.run import run
from verification.conformance.spec import from_json


def main(source: str, answers: str, stop: bool) -> int:
    """See the module."""
    if not Path(str(penstock.__file__)).is_relative_to(source):
        print(f"penstock comes from {penstock.__file__}, not from {source}", file=sys.stderr)
        return 2
    found: list[str] = []
    with Path(answers).open(encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            case = from_json(entry["case"])
            if differences(entry["answer"], run(case)):
                found.append(case.id)
                if stop:
                    break
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], "--stop" in sys.argv[3:]))
