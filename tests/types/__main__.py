"""`python -m tests.types`: whether a user's type checker understands Penstock's types.

Builds the wheel, installs it and has mypy and pyright check programs that use it, in which wrong lines are marked. Writes
reports/types.json and prints its figures last.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.types.environment import CheckError, Environment
from tests.types.verdicts import Verdict, expected_errors, judge

PROGRAMS = Path(__file__).parent / "programs"
REPORT = Path("reports/types.json")


def main() -> int:
    """Return 0 if all public names are typed, and exactly the expected errors are found."""
    programs = {path.name: path.read_text(encoding="utf-8") for path in sorted(PROGRAMS.glob("*.py"))}
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-types-") as directory:
            environment = Environment(Path(directory).resolve())
            environment.put(programs)
            verdicts = {
                "mypy": judge(expected_errors(programs, "mypy"), environment.mypy()),
                "pyright": judge(expected_errors(programs, "pyright"), environment.pyright()),
            }
            completeness, guessed = environment.completeness()
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2
    _print_errors(verdicts, guessed)
    figures = figures_of(verdicts, completeness)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(" ".join(f"{name}={value}" for name, value in figures.items()))
    return 0 if completeness >= 100 and not figures["missed"] and not figures["unexpected"] else 1


def figures_of(verdicts: Mapping[str, Verdict], completeness: float) -> dict[str, float]:
    """The figures of all checkers together."""
    return {
        "completeness": int(completeness * 100) / 100,  # never rounded up to 100
        "expected_errors": sum(verdict.expected for verdict in verdicts.values()),
        "missed": sum(len(verdict.missed) for verdict in verdicts.values()),
        "unexpected": sum(len(verdict.unexpected) for verdict in verdicts.values()),
    }


def _print_errors(verdicts: Mapping[str, Verdict], guessed: list[str]) -> None:
    for checker, verdict in verdicts.items():
        for error in verdict.missed:
            print(f"{checker} did not find {error}")
        for error in verdict.unexpected:
            print(f"{checker} found {error}")
    for name in guessed:
        print(f"has a type that checkers must infer: {name}")


if __name__ == "__main__":
    sys.exit(main())
