"""Pictures of the dashboard of a running application, for the documents: `python -m verification.pictures.dashboard URL`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from verification.harness.chromium import Chromium
from verification.harness.processes import ROOT

IMAGES = ROOT / "docs" / "images"
LARGEST_BYTES = 400_000
_WATCHED_S = 30.0
"""How long the page is open before, so that its charts show something."""


def take(url: str, into: Path = IMAGES, *, token: str | None = None, watched_s: float = _WATCHED_S) -> list[Path]:
    """Write `dashboard-light.png` and `dashboard-dark.png`, each of the whole page."""
    into.mkdir(parents=True, exist_ok=True)
    files = []
    with Chromium(width=1280, height=800) as browser:
        browser.open(f"{url.rstrip('/')}/")
        if token is not None:
            browser.wait_for("document.querySelector('#door').open")
            browser.write(token)
            browser.run("document.querySelector('#unlock').requestSubmit()")
        browser.wait_for("document.querySelectorAll('#epochs g').length")
        browser.rest(watched_s)
        browser.resize(1280, int(browser.run("document.documentElement.scrollHeight")))
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.rest(1.5)
            file = into / f"dashboard-{scheme}.png"
            browser.screenshot(file)
            size = file.stat().st_size
            assert size < LARGEST_BYTES, f"{file.name} has {size} bytes, at most {LARGEST_BYTES}"
            files.append(file)
        unasked = [complaint for complaint in browser.complaints if "401" not in complaint]
        assert not unasked, f"the page reports errors: {unasked}"
    return files


def main() -> None:
    """From the command line; a token comes from the environment (`PENSTOCK_ADMIN_TOKEN`)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the address of the admin server, such as http://127.0.0.1:7070")
    for file in take(parser.parse_args().url, token=os.environ.get("PENSTOCK_ADMIN_TOKEN")):
        print(file)


if __name__ == "__main__":
    main()
