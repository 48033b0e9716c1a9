"""When a scheduled source ticks: a cron expression in a time zone, or an interval, as a value without a clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from penstock.errors import TopologyError
from penstock.timing.durations import Duration, duration_ms, instant_ms

_HOUR_MS = 3_600_000
_SPANS_MS = (_HOUR_MS, 24 * _HOUR_MS, 32 * 24 * _HOUR_MS, 366 * 24 * _HOUR_MS)


class Misfire(Enum):
    """What to do with ticks that were due while the application was down or busy."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Either a cron expression with its time zone, or an interval in milliseconds."""

    cron: str | None
    tz: str
    every_ms: int | None
    misfire: Misfire

    @property
    def expression(self) -> str:
        """When it ticks, as text; a schedule with another expression is another schedule."""
        return f"every {self.every_ms} ms" if self.cron is None else f"cron {self.cron} in {self.tz}"

    def __str__(self) -> str:
        return f"{self.expression}, misfire: {self.misfire.value}"

    def first(self, now: int) -> int:
        """Return the first tick of a schedule that starts now."""
        return self.following(now)

    def following(self, due: int) -> int:
        """Return the tick after the one at `due`."""
        return due + self.every_ms if self.every_ms is not None else next(self._after(due))

    def latest(self, due: int, now: int) -> int:
        """Return the last tick at or before `now`; `due` is a tick at or before `now`."""
        if self.every_ms is not None:
            return due + (now - due) // self.every_ms * self.every_ms
        for span in _SPANS_MS:  # so that a long pause is not walked tick by tick
            *_, last = -1, *takewhile(lambda time: time <= now, self._after(max(due, now - span)))
            if last != -1:
                return last
        *_, last = due, *takewhile(lambda time: time <= now, self._after(due))
        return last

    def _after(self, time: int) -> Iterator[int]:
        """Yield all ticks of the cron expression after a time."""
        start = datetime.fromtimestamp(time // 1_000, ZoneInfo(self.tz))
        return (instant_ms(found) for found in CronSim(self.cron or "", start))


def schedule(cron: str | None, every: Duration | None, tz: str | None, misfire: str) -> Schedule:
    """Return a schedule from checked arguments."""
    if (cron is None) == (every is None):
        raise TopologyError("pass either cron= or every=")
    if every is not None and tz is not None:
        raise TopologyError("tz= is only for cron=: an interval does not depend on the time zone")
    every_ms = None if every is None else duration_ms(every, "every=")
    if every_ms is not None and every_ms < 1:
        raise TopologyError(f"every={every!r}: an interval must be at least 1 ms")
    zone = "UTC" if tz is None else tz
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        raise TopologyError(
            f"tz={tz!r}: unknown time zone; write it like Europe/Zurich, and check that tzdata is installed"
        ) from None
    try:
        made = Schedule(None if cron is None else " ".join(cron.split()), zone, every_ms, Misfire(misfire))
    except ValueError:
        raise TopologyError(f"misfire={misfire!r}: it must be 'skip', 'once' or 'all'") from None
    try:
        made.first(0)
    except CronSimError as error:
        raise TopologyError(
            f"cron={cron!r}: {error}; write five fields: minute, hour, day of month, month, day of week"
        ) from None
    except StopIteration:
        raise TopologyError(f"cron={cron!r}: no such day exists") from None
    return made
