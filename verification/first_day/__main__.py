"""`python -m verification.first_day`: what a reader meets on the first day, from the installation to an application on a broker.

Writes reports/first-day.json, prints what is wrong, and the figures last.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from verification.first_day import installation, links, mistakes, names, serving
from verification.first_day.commands import tries
from verification.first_day.exactly_once import problem_on_broker, store_shown
from verification.first_day.outcome import Record
from verification.first_day.pages import Page, read_page
from verification.first_day.report import Checks, report
from verification.first_day.session import Session
from verification.harness.broker import NEVER_KILLED, Broker
from verification.harness.processes import KAFKA_JARS, ROOT

START = "README.md"
PAGES = (START, "docs/first-steps.md", "docs/tutorial.md")
QUICK = PAGES[:2]
BROKER_PORT = 9092
"""The port that the pages name for a broker of the reader's."""
APPLICATION, RESULTS = "shop", "totals"
"""The application of the quick start; its store, and the topic with the changes of it."""


def main(arguments: list[str] | None = None) -> int:
    """Follow the pages, check the rest, and write the report; the exit code is 0 if every goal is met."""
    parser = argparse.ArgumentParser(prog="python -m verification.first_day")
    parser.add_argument(
        "--quick", action="store_true", help=f"only {' and '.join(QUICK)}, with pip's cache; no mistakes, no site"
    )
    parser.add_argument("--report", type=Path, default=Path("reports/first-day.json"))
    options = parser.parse_args(arguments)
    for port in (BROKER_PORT, serving.PORT):
        if serving.is_taken(port):
            parser.error(f"something listens on port {port}, which the pages use. End it first.")
    with tempfile.TemporaryDirectory(prefix="first-day-") as place:
        directory = Path(place)
        environment = _environment(directory, is_cold=not options.quick)
        records = [_follow(read_page(ROOT, name), directory, environment) for name in (QUICK if options.quick else PAGES)]
        checks = Checks(
            undocumented=names.undocumented(ROOT),
            mistakes=None if options.quick else mistakes.provoke(),
            dead_links=None if options.quick else links.all_dead_links(directory),
        )
    found = report(records, checks)
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    _tell(found, options.report)
    return 1 if found["missed"] else 0


def _environment(directory: Path, *, is_cold: bool) -> dict[str, str]:
    """Return the variables of the terminals. With a cold cache, the first installation downloads everything."""
    programs, constraints = directory / "bin", directory / "constraints.txt"
    installation.provide_python(programs)
    wheel = installation.build_wheel(directory / "dist")
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    constraints.write_text(installation.constraints(lock, wheel), encoding="utf-8")
    environment = installation.reader_environment(os.environ, programs)
    environment |= {"PIP_CONSTRAINT": str(constraints), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**environment, "PIP_CACHE_DIR": str(directory / "cache")} if is_cold else environment


def _follow(page: Page, directory: Path, environment: Mapping[str, str]) -> Record:
    """Follow a page with a new broker, in a new directory, which is removed: environments are large."""
    home = directory / Path(page.name).stem
    home.mkdir()
    with Broker(port=BROKER_PORT, settings=NEVER_KILLED) as broker:
        look = _look(page, broker.bootstrap_servers)
        with Session(page, home, environment, KAFKA_JARS, look) as session:
            if not any("python -m venv" in command.text for command in page.commands()):
                session.prepare("python -m venv .venv && . .venv/bin/activate")
            record = session.follow()
    shutil.rmtree(home)
    print(f"{page.name}: {len(page.blocks)} code blocks, {record.failed_blocks} failed", flush=True)
    return record


def _look(page: Page, servers: str) -> Callable[[], str | None]:
    """Return what to check once the application serves: that of the quick start must give on the broker what it gives without."""
    if page.name != START:
        return lambda: None
    [shown] = [command.shown for command in page.commands() if tries(command.text)]
    return partial(problem_on_broker, servers, APPLICATION, RESULTS, store_shown(shown or "", RESULTS))


def _tell(found: Mapping[str, Any], file: Path) -> None:
    lists = ("problems", "missed", "commands")
    for problem in found["problems"]:
        print(problem)
    print(json.dumps({name: value for name, value in found.items() if name not in lists}))
    print(f"see {file}; missed: {found['missed'] or 'nothing'}")


if __name__ == "__main__":
    sys.exit(main())
