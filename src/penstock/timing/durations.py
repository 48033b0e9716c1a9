"""Durations and instants as users write them, converted to whole milliseconds."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from penstock.errors import TopologyError
from penstock.errors.lines import user_line

Duration = str | timedelta | int
"""`"250ms"`, `"30s"`, `"5m"`, `"1h"`, `"7d"`, a `timedelta`, or whole milliseconds."""

Instant = str | datetime | int
"""An ISO 8601 string with its offset, an aware `datetime`, or epoch milliseconds."""

MAX_MS = 2**63 - 1
"""The end of time: the largest timestamp Kafka can carry."""

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WRITTEN = re.compile(r"\s*(-?[0-9]+)\s*(ms|s|m|h|d)\s*")


def duration_ms(duration: Duration, what: str = "duration") -> int:
    """Return a duration in milliseconds, rounded down. `what` names it in errors."""
    if isinstance(duration, str):
        written = _WRITTEN.fullmatch(duration)
        if written is None:
            cure = 'write a number and a unit: "250ms", "30s", "5m", "1h", "7d"'
            raise TopologyError(f"{what}: invalid duration {duration!r}; {cure} ({user_line()})")
        milliseconds = int(written[1]) * _UNITS_MS[written[2]]
    elif isinstance(duration, timedelta):
        milliseconds = duration // _MILLISECOND
    elif _is_int(duration):
        milliseconds = duration
    else:
        expected = 'expected a string such as "5m", a timedelta or milliseconds'
        raise TopologyError(f"{what}: {expected}, got {duration!r} ({user_line()})")
    return _within_range(milliseconds, what)


def instant_ms(instant: Instant, what: str = "instant") -> int:
    """Return a point in time as epoch milliseconds, rounded down. `what` names it in errors."""
    if isinstance(instant, str):
        try:
            # Python 3.10 does not accept the Z of ISO 8601.
            instant = datetime.fromisoformat(f"{instant[:-1]}+00:00" if instant[-1:] in {"Z", "z"} else instant)
        except ValueError:
            raise TopologyError(f'{what}: invalid instant {instant!r}; write ISO 8601: "2024-05-01T12:00:00Z"') from None
    if isinstance(instant, datetime):
        if instant.utcoffset() is None:
            raise TopologyError(f"{what}: {instant.isoformat()} has no time zone; add one, such as Z or tzinfo=timezone.utc")
        return (instant - _EPOCH) // _MILLISECOND
    if _is_int(instant):
        return _within_range(instant, what)
    cure = "; seconds become milliseconds with int(seconds * 1000)" if isinstance(instant, float) else ""
    raise TopologyError(f"{what}: expected an ISO 8601 string, an aware datetime or epoch milliseconds, got {instant!r}{cure}")


def _is_int(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _within_range(milliseconds: int, what: str) -> int:
    if not -MAX_MS <= milliseconds <= MAX_MS:
        raise TopologyError(f"{what}: {milliseconds} ms exceed 64 bits")
    return milliseconds
