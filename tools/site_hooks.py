"""Hooks of the site: links to files that are not part of it lead to the repository, or become text if the build names none;
links to pages show their titles; examples in docstrings become code.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_EXAMPLE = re.compile(r"^(\s*)Example:$", re.MULTILINE)
_LINK_TO_CODE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+((?:src|tests|verification|benchmarks|deploy|examples|\.github)(?:/[^)]*)?)\)"
)
_LINK_BY_FILE = re.compile(r"\[[\w./-]+\.md\]\(([\w./-]+\.md)(?:#([\w-]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK_TO_PAGE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([A-Z]+\.md(?:#[\w-]+)?)\)")


_BRANCH = "blob/main"


def on_config(config: Any) -> None:
    """Let each page link to its source, if the build names a repository."""
    config.edit_uri = f"{_BRANCH}/docs/" if config.repo_url else ""


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: object) -> str:
    """Replace links to the code, and to pages beside it; name the others as readers know them."""
    return with_titles(with_code_links(markdown, config.repo_url), Path(page.file.abs_src_path).parent)


def with_code_links(markdown: str, repository: str | None) -> str:
    """Return the text of a page as the site has it.

    Example:
        >>> text = "the driver ([placement.py](../../src/penstock/engines/many_hosts.py)) decides"
        >>> with_code_links(text, None)
        'the driver (`placement.py`) decides'
        >>> with_code_links(text, "https://code.example/penstock")
        'the driver ([placement.py](https://code.example/penstock/blob/main/src/penstock/engines/many_hosts.py)) decides'
    """
    if repository:
        there = rf"[\1]({repository.rstrip('/')}/{_BRANCH}/\2)"
        return _LINK_TO_PAGE.sub(there, _LINK_TO_CODE.sub(there, markdown))
    return _LINK_TO_PAGE.sub(r"\1", _LINK_TO_CODE.sub(lambda found: f"`{found[1].strip('`')}`", markdown))


def with_titles(markdown: str, directory: Path) -> str:
    """Return the text with links that show the title of a page, or of a part of it, where they showed the name of its file."""

    def titled(link: re.Match[str]) -> str:
        target, anchor = directory / link[1], link[2]
        if not target.is_file():
            return link[0]  # mkdocs says so
        headings = _HEADING.findall(target.read_text(encoding="utf-8"))
        title = next((heading for heading in headings if _anchor(heading) == anchor), headings[0])
        return link[0].replace(link[0].partition("]")[0], f"[{title}", 1)

    return _LINK_BY_FILE.sub(titled, markdown)


def _anchor(heading: str) -> str:
    """Return what links to a heading end with."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def with_examples(docstring: str) -> str:
    r"""Return a docstring whose example is a section of its own, which the site shows as code.

    Example:
        >>> with_examples("What it is.\n\nExample:\n    >>> 1 + 1").splitlines()[2]
        'Examples:'
    """
    return _EXAMPLE.sub(r"\1Examples:", docstring)
