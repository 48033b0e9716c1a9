"""Hooks of the site: links from a page to the code, which is not part of the site, become text."""

from __future__ import annotations

import re

_LINK_TO_CODE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:src|tests|verification|benchmarks)/[^)]*\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace links to the code by the names that they have."""
    return without_code_links(markdown)


def without_code_links(markdown: str) -> str:
    """Return the text of a page as the site has it.

    Example:
        >>> without_code_links("the driver ([placement.py](../../src/penstock/epochs/placement.py)) decides")
        'the driver (`placement.py`) decides'
    """
    return _LINK_TO_CODE.sub(r"`\1`", markdown)
