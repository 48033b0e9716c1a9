"""Prints results and errors. Control characters in data are escaped, so that they cannot control the terminal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal, reverse text or break lines, and lone surrogates, which cannot be encoded."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

VERDICT_STYLES = {
    "ok": "green",
    "kept": "green",
    "new": "cyan",
    "rebuilt": "cyan",
    "renamed": "cyan",
    "warn": "yellow",
    "dropped": "yellow",
    "lost": "red",
    "fail": "red",
    "refused": "red",
}


def output_console() -> Console:
    """Return a console on the current standard output, for results."""
    return Console(highlight=False, emoji=False)


def error_console() -> Console:
    """Return a console on standard error, for errors and progress: lines are wrapped between words, and only on a terminal."""
    console = Console(stderr=True, highlight=False, emoji=False)
    console.soft_wrap = not console.is_terminal
    return console


def failure(code: str, message: str) -> Text:
    """Return the error that ends a command, with its code; files below the current directory by their path from there."""
    return Text.assemble(shown(code, style="bold red"), ": ", shown(message.replace(f"{Path.cwd()}{os.sep}", "")))


def shown(value: object, style: str = "") -> Text:
    """Return a value as text, with control characters escaped (data may contain them)."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return Text(_CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text), style=style)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    """Return a table of values."""
    made = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        made.add_column(shown(column), overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else shown(cell) for cell in row))
    return made


def moment(timestamp: int) -> str:
    """Return milliseconds since 1970 as a time in UTC, or as they are if no calendar has them."""
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(timestamp)


def verdict(word: str) -> Text:
    """Return a verdict in its colour."""
    return Text(word, style=VERDICT_STYLES.get(word, ""))


def print_json(value: object) -> None:
    """Print a value as JSON, for programs: ASCII only, neither wrapped nor coloured."""
    typer.echo(json.dumps(value, default=str))
