"""Hooks of the site: links to files that are not part of it become text; examples in docstrings become code."""

from __future__ import annotations

import re

_EXAMPLE = re.compile(r"^(\s*)Example:$", re.MULTILINE)
_LINK_TO_CODE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:src|tests|verification|benchmarks|deploy|examples|\.github)(?:/[^)]*)?\)")
_LINK_TO_PAGE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[A-Z]+\.md\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace links to the code, and to pages beside it, by the names that they have."""
    return without_code_links(markdown)


def without_code_links(markdown: str) -> str:
    """Return the text of a page as the site has it.

    Example:
        >>> without_code_links("the driver ([placement.py](../../src/penstock/epochs/placement.py)) decides")
        'the driver (`placement.py`) decides'
    """
    return _LINK_TO_PAGE.sub(r"\1", _LINK_TO_CODE.sub(lambda found: f"`{found[1].strip('`')}`", markdown))


def with_examples(docstring: str) -> str:
    r"""Return a docstring whose example is a section of its own, which the site shows as code.

    Example:
        >>> with_examples("What it is.\n\nExample:\n    >>> 1 + 1").splitlines()[2]
        'Examples:'
    """
    return _EXAMPLE.sub(r"\1Examples:", docstring)
