"""Parses where an application continues after a reset: `--to-earliest`, `--to-latest`, `--to-time` and `--to-offset`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from penstock.errors import ConfigError
from penstock.history.rewind import Goal, Goals, To
from penstock.records import is_name

_WHOLE = re.compile(r"[0-9]{1,18}")


def goals_of(
    earliest: Iterable[str] = (), latest: Iterable[str] = (), times: Iterable[str] = (), offsets: Iterable[str] = ()
) -> Goals:
    """Return the goals by topic; each topic or partition may be named once.

    Example:
        >>> goals_of(earliest=["orders"], times=["clicks=2026-01-31T12:00:00Z"], offsets=["bids:0=500"])["bids"]
        {0: Goal(to=<To.OFFSET: 'offset'>, at=500)}
    """
    goals: dict[str, dict[int | None, Goal]] = {}

    def add(option: str, place: str, goal: Goal) -> None:
        topic, colon, number = place.partition(":")
        if not is_name(topic) or (colon and not _WHOLE.fullmatch(number)):
            raise ConfigError(f"{option}: invalid topic {place!r}. Expected TOPIC or TOPIC:PARTITION.")
        partition = int(number) if colon else None
        known = goals.setdefault(topic, {})
        if partition in known or (known and (partition is None or None in known)):
            raise ConfigError(f"{option}: {place!r} is named twice. Name each topic or partition once.")
        known[partition] = goal

    for place in earliest:
        add("--to-earliest", place, Goal(To.EARLIEST))
    for place in latest:
        add("--to-latest", place, Goal(To.LATEST))
    for text in times:
        place, when = _pair("--to-time", text, "TOPIC=2026-01-31T12:00:00Z")
        add("--to-time", place, Goal(To.TIME, _milliseconds(when)))
    for text in offsets:
        place, offset = _pair("--to-offset", text, "TOPIC:PARTITION=OFFSET")
        if not _WHOLE.fullmatch(offset):
            raise ConfigError(f"--to-offset: invalid offset {offset!r}. Expected a whole number.")
        add("--to-offset", place, Goal(To.OFFSET, int(offset)))
    return goals


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    place, equals, value = text.partition("=")
    if not equals or not value:
        raise ConfigError(f"{option}: expected {form}, got {text!r}.")
    return place, value


def _milliseconds(text: str) -> int:
    """Parse a time: ISO 8601 with an offset from UTC, or milliseconds since 1970."""
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text))
    except ValueError:
        raise ConfigError(f"--to-time: invalid time {text!r}. Write 2026-01-31T12:00:00Z, or milliseconds since 1970.") from None
    if moment.tzinfo is None:
        raise ConfigError(f"--to-time: {text!r} has no time zone. Append Z for UTC, or an offset such as +02:00.")
    return int(moment.timestamp() * 1000)
