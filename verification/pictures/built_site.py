"""Pictures of the site, as `make site` has built it, from a server on this machine; and a check of every page in a browser."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from verification.harness.chromium import Chromium
from verification.pictures.camera import PHONE, SCREEN, Camera

PAGES = {"landing": "index.html", "concepts": "concepts/epoch.html", "reference": "api.html"}
"""The pages of pictures, by the name of the picture."""

WANTED = "watermark"
"""What is searched for."""

_HITS = "document.querySelectorAll('.md-search-result__item').length"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, without a log."""

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a directory on loopback while the block runs; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def pictures(site: Path, into: Path) -> list[Path]:
    """Take `site-landing`, `site-concepts`, `site-reference` and `site-search`, and check every page."""
    assert (site / "index.html").exists(), f"there is no site in {site}: run `make site`"
    with served(site) as url, Chromium() as browser:
        camera = Camera(browser, into)
        browser.prefer("light")
        for name, page in PAGES.items():
            camera.open(f"{url}/{page}")
            camera.take(f"site-{name}")
        search(camera, url)
        camera.take("site-search")
        search(camera, site.resolve().as_uri())
        wrong = list(complaints(camera, url, site))
        assert not wrong, "\n".join(wrong)
        return camera.taken


def search(camera: Camera, url: str) -> None:
    """Type a word into the search field, and check what is found; a site is searched from a directory, too."""
    browser = camera.browser
    camera.open(f"{url}/index.html")
    browser.run("document.querySelector('.md-search__input').focus()")
    browser.write(WANTED)
    browser.wait_for(f"{_HITS} > 3")
    found = str(browser.run("document.querySelector('.md-search-result__list').textContent"))
    assert WANTED in found.lower(), f"a search for {WANTED} finds something else: {found[:300]}"
    camera.check()


def complaints(camera: Camera, url: str, site: Path) -> Iterator[str]:
    """Yield what is wrong with the pages: errors, images, requests to elsewhere, and what is wider than a screen or a phone."""
    for page in sorted(site.rglob("*.html")):
        camera.open(f"{url}/{page.relative_to(site)}")
        try:
            camera.check(SCREEN, PHONE)
        except AssertionError as error:
            yield str(error)
