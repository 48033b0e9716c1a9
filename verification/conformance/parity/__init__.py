"""`python -m verification.conformance parity`: every public method of Kafka Streams is mapped, excluded or missing."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from verification.conformance.parity import settings
from verification.conformance.parity.method_map import MAPPING
from verification.conformance.parity.page import Row, counts, markdown, rows, verbs
from verification.conformance.parity.penstock_names import StaleNameError
from verification.conformance.parity.reflection import METHODS, ReflectionError, load, reflect, reflect_settings, save
from verification.conformance.parity.rules import Missing
from verification.harness.processes import ROOT

PAGE = ROOT / "docs" / "parity.md"
REPORT = ROOT / "reports" / "parity.json"
CONFORMANCE = ROOT / "reports" / "conformance.json"
FULL_RUN = 2000
"""A conformance run of fewer cases may miss a verb by chance."""


def main(argv: list[str]) -> int:
    """Write the page and the report; return 1 if something is missing or stale, or (`--check`) if the page is out of date."""
    parser = argparse.ArgumentParser(prog="python -m verification.conformance parity")
    parser.add_argument("--check", action="store_true", help="write only the report; fail if the page is out of date")
    parser.add_argument("--reflect", action="store_true", help="only read methods and settings from the jars")
    options = parser.parse_args(argv)
    try:
        methods, names = reflect(), reflect_settings()
        complaints = []
        if not options.check:
            save(methods)
            settings.save(names)
        elif methods != load():
            complaints.append(f"{METHODS.relative_to(ROOT)} differs from the jars; run `make parity`")
        elif names != settings.load():
            complaints.append(f"{settings.NAMES.name} differs from the jars; run `make parity`")
        if options.reflect:
            return 0
        judged = rows(methods, MAPPING)
    except (ReflectionError, StaleNameError) as error:
        sys.stderr.write(f"parity: {error}\n")
        return 1
    complaints += _written(markdown(judged), options.check) + _missing(judged) + _unexercised(verbs(judged), CONFORMANCE)
    total = counts(judged)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(total, indent=2) + "\n")
    sys.stdout.write("".join(f"{complaint}\n" for complaint in complaints))
    sys.stdout.write(", ".join(f"{count} {name}" for name, count in total.items()) + "\n")
    return 1 if complaints else 0


def _written(text: str, check: bool) -> list[str]:
    if not check:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        return [f"{PAGE.relative_to(ROOT)} is out of date; run `make parity`"]
    return []


def _missing(judged: list[Row]) -> list[str]:
    return [
        f"missing: {row.method.owner}.{row.method.signature}: {row.outcome.suggestion}"
        for row in judged
        if isinstance(row.outcome, Missing)
    ]


def _unexercised(named: set[str], report: Path) -> list[str]:
    """Verbs on the page that the last full conformance run, if any, did not exercise."""
    if not report.exists():
        return []
    run = json.loads(report.read_text())
    if run["cases"] < FULL_RUN:
        return []
    return [f"no conformance case exercises {verb!r}" for verb in sorted(named) if not run["verbs"].get(verb)]
