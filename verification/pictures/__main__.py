"""`python -m verification.pictures`: takes the pictures of the documents, and checks what they show.

A picture that has not changed to the eye changes in its bytes: commit only those that you mean to.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from verification.harness.broker import NEVER_KILLED, Broker
from verification.harness.processes import ROOT
from verification.pictures import built_site, dashboard, notebook, sessions, spark_ui

IMAGES = ROOT / "docs" / "images"
SITE = ROOT / "reports" / "site"
Part = Callable[[Path], list[Path]]


def _with_broker(pictures: Callable[[Broker, Path, Path], list[Path]]) -> Part:
    """A part with a broker and a directory of its own, which are gone afterwards."""

    def take(into: Path) -> list[Path]:
        with tempfile.TemporaryDirectory(prefix="pictures-") as directory, Broker(settings=NEVER_KILLED) as broker:
            return pictures(broker, Path(directory), into)

    return take


PARTS: dict[str, Part] = {
    "dashboard": _with_broker(dashboard.pictures),
    "spark": _with_broker(spark_ui.pictures),
    "terminal": _with_broker(sessions.pictures),
    "notebook": _with_broker(notebook.pictures),
    "site": lambda into: built_site.pictures(SITE, into),
}


def main(arguments: list[str] | None = None) -> int:
    """Take the pictures of all parts, or of some."""
    parser = argparse.ArgumentParser(prog="python -m verification.pictures")
    parser.add_argument("--only", nargs="*", default=[*PARTS], choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--into", type=Path, default=IMAGES, help="the directory of the pictures; by default docs/images")
    options = parser.parse_args(arguments)
    for name in options.only:
        begun = time.monotonic()
        taken = PARTS[name](options.into)
        print(f"{name}: {', '.join(file.name for file in taken)} in {time.monotonic() - begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
