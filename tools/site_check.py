"""Checks a built site: it loads nothing from elsewhere, and no link leads nowhere. `python -m tools.site_check reports/site`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADS = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "image": "href",
    "img": "src",
    "input": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "track": "src",
    "use": "href",
    "video": "src",
}
"""Attributes by which a browser loads something without being asked to; `a` is not among them."""

_HARMLESS = frozenset({"canonical", "alternate", "next", "prev", "author", "license"})
"""Relations of `link` that load nothing."""

_ELSEWHERE = re.compile(r"(?:https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:@import\s+(?:url\()?|url\()\s*['\"]?((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)


class Loads(HTMLParser):
    """What a page loads from elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Look at an element."""
        given = {name: value or "" for name, value in attrs}
        self.found += _IN_STYLE.findall(given.get("style", ""))
        if "mermaid" in given.get("class", "").split():
            self.found.append("a diagram of Mermaid, whose script the theme loads from elsewhere")
        is_harmless = tag == "link" and set(given.get("rel", "").lower().split()) <= _HARMLESS
        for address in (given.get(_LOADS.get(tag, "")), given.get("srcset")):
            if address and not is_harmless and _ELSEWHERE.match(address.strip()):
                self.found.append(address)


def complaints(site: Path) -> Iterator[str]:
    """Yield what the site loads from elsewhere, with the file."""
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        for address in (*Loads(text).found, *_IN_STYLE.findall("".join(re.findall(r"(?s)<style[^>]*>(.*?)</style>", text)))):
            yield f"{page.relative_to(site)}: loads {address}"
    for style in sorted([*site.rglob("*.css"), *site.rglob("*.svg")]):
        for address in _IN_STYLE.findall(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(site)}: loads {address}"


class Anchors(HTMLParser):
    """The places of a page that links lead to, and its own links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Look at an element."""
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])


def dead_links(site: Path) -> Iterator[str]:
    """Yield the links between the pages of a site that lead nowhere, with the page that has them."""
    root = site.resolve()
    pages = {page: Anchors(page.read_text(encoding="utf-8")) for page in sorted(root.rglob("*.html"))}
    for page, found in pages.items():
        for link in dict.fromkeys(found.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            start = root if parts.path.startswith("/") else page.parent
            target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            place = unquote(parts.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                yield f"{page.relative_to(root)}: the link {link} leads nowhere"


def main(arguments: Sequence[str]) -> int:
    """Check a site; return the exit code."""
    site = Path(arguments[0])
    found = [*complaints(site), *dead_links(site)]
    pages = len(list(site.rglob("*.html")))
    sys.stdout.write(
        "".join(f"{complaint}\n" for complaint in found) or f"{pages} pages, nothing from elsewhere, no dead links\n"
    )
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
