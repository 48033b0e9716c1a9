"""What commands print with: one console for answers, one for errors, and text that cannot do more than be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What commands a terminal, turns text around or breaks lines, and what no terminal can be sent."""

VERDICT_STYLES = {
    "ok": "green",
    "kept": "green",
    "new": "cyan",
    "rebuilt": "cyan",
    "warn": "yellow",
    "dropped": "yellow",
    "lost": "red",
    "fail": "red",
    "refused": "red",
}


def answers() -> Console:
    """Where answers go: standard output, as it is now."""
    return Console(highlight=False, emoji=False)


def complaints() -> Console:
    """Where errors go."""
    return Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


def shown(value: object, style: str = "") -> Text:
    """A value as text; what would command a terminal (data may hold it) is shown by its code."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return Text(_CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text), style=style)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    """A table of values."""
    made = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        made.add_column(shown(column), overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else shown(cell) for cell in row))
    return made


def verdict(word: str) -> Text:
    """A verdict in its colour."""
    return Text(word, style=VERDICT_STYLES.get(word, ""))


def print_json(value: object) -> None:
    """A value as JSON, for programs: nothing of it is wrapped, coloured, or more than ASCII."""
    typer.echo(json.dumps(value, default=str))
