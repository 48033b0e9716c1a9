"""HTML that notebooks show: tables of text, in the notebook's own style. What users and topics contain is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

ROWS = 50
"""How many rows a table shows."""

_LONGEST = 300
"""How many characters a cell shows."""


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "", most: int = ROWS) -> str:
    """Return a table; if it has more rows than `most`, it says so."""
    shown = list(islice(rows, most + 1))
    is_cut = len(shown) > most
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_text(as_text(cell))}</td>' for cell in row)}</tr>" for row in shown[:most])
    more = f'<tr><td colspan="{len(columns)}">… and more</td></tr>' if is_cut else ""
    above = f"<caption>{_text(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}{more}</tbody></table>"


def html_line(text: str) -> str:
    """Return a line of text."""
    return f"<p>{_text(text)}</p>"


def html_link(address: str, text: str) -> str:
    """Return a link to an address of Penstock's own, which opens in another tab."""
    return f'<p><a href="{escape(address)}" target="_blank" rel="noopener">{_text(text)}</a></p>'


def as_text(value: object) -> str:
    """Return a value as a cell shows it: text as it is, everything else as Python writes it."""
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _text(text: str) -> str:
    return escape(text)
