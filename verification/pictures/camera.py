"""A camera: a browser that takes pictures of pages, and checks of each what a program can check.

A page must not report errors, ask other machines, lack images, or be wider than a screen or a phone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from verification.harness.chromium import Chromium

LARGEST_BYTES = 400_000
"""Of a picture, so that pages stay quick to load and the repository small."""

_SETTLING_S = 0.5
"""Fonts, transitions and what a script does after the page is loaded."""

_MISSING_IMAGES = "[...document.images].filter((one) => !one.naturalWidth).map((one) => one.src)"
_WIDTH = "document.documentElement.scrollWidth"
_TOO_WIDE = """(() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (one) => getComputedStyle(one).overflowX !== "visible";
  const isInside = (one) => one !== document.body && (scrolls(one) || isInside(one.parentElement));
  const found = [...document.body.querySelectorAll("*")].filter((one) => one.getBoundingClientRect().right > width + 1);
  return found.filter((one) => !isInside(one.parentElement)).slice(-3).map((one) => one.outerHTML.slice(0, 160));
})()"""


class Window(NamedTuple):
    """The size of a browser's window."""

    width: int
    height: int
    is_phone: bool = False


SCREEN = Window(1280, 800)
PHONE = Window(390, 844, is_phone=True)


class Camera:
    """Takes pictures into a directory; `taken` are those so far."""

    def __init__(self, browser: Chromium, into: Path) -> None:
        self.browser = browser
        self.taken: list[Path] = []
        self._into = into
        into.mkdir(parents=True, exist_ok=True)

    def open(self, url: str, window: Window = SCREEN) -> None:
        """Open a page, and wait until its images are there."""
        self.browser.complaints.clear()
        self.browser.requests.clear()
        self.resize(window)
        self.browser.open(url)
        self.browser.wait_for("[...document.images].every((one) => one.complete)")

    def resize(self, window: Window) -> None:
        """Give the page another window, and let it settle."""
        self.browser.resize(window.width, window.height, is_phone=window.is_phone)
        self.browser.rest(_SETTLING_S)

    def show_all(self, width: int = SCREEN.width) -> None:
        """Make the window as high as the page."""
        self.resize(Window(width, int(self.browser.run("document.documentElement.scrollHeight"))))

    def take(self, name: str) -> Path:
        """Take a picture of what the window shows."""
        file = self._into / f"{name}.png"
        self.browser.screenshot(file)
        size = file.stat().st_size
        assert size < LARGEST_BYTES, f"{file.name} has {size} bytes, at most {LARGEST_BYTES}: show less of the page"
        self.taken.append(file)
        return file

    def take_part(self, name: str, selector: str, scale: float) -> Path:
        """Take a picture of an element at the top left of the page, and of nothing else."""
        box = self.browser.run(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        self.browser.resize(math.ceil(box["right"]), math.ceil(box["bottom"]), scale=scale)
        self.browser.rest(_SETTLING_S)
        return self.take(name)

    def check(self, *windows: Window, expected: Sequence[str] = ()) -> None:
        """Raise if something is wrong with the page in one of the windows; `expected` are parts of complaints that are meant."""
        wrong = [text for text in self.browser.complaints if not any(known in text for known in expected)]
        wrong += [f"it asks {url}" for url in self.browser.requests if is_elsewhere(url, self.address)]
        wrong += [f"no image at {url}" for url in self.browser.run(_MISSING_IMAGES)]
        for window in windows:
            self.resize(window)
            if self.browser.run(_WIDTH) > window.width:
                wrong.append(
                    f"it is {self.browser.run(_WIDTH)} wide in a window of {window.width}: {self.browser.run(_TOO_WIDE)}"
                )
        assert not wrong, "\n  ".join([f"{self.address}:", *wrong])

    @property
    def address(self) -> str:
        """Where the page is."""
        return str(self.browser.run("location.href"))


def is_elsewhere(url: str, page: str) -> bool:
    """Whether a page that asks for an address would reach another server than its own.

    Example:
        >>> is_elsewhere("http://fonts.example/a.css", "http://127.0.0.1:8000/index.html")
        True
        >>> is_elsewhere("data:image/png;base64,aGk=", "http://127.0.0.1:8000/index.html")
        False
    """
    asked, own = urlsplit(url), urlsplit(page)
    return asked.scheme not in {"data", "blob", "about"} and (asked.scheme, asked.netloc) != (own.scheme, own.netloc)
