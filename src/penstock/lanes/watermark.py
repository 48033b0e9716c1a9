"""The watermark as a lane knows it: the application's, that of the record in hand, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.lanes.cursor import Cursor
from penstock.lanes.position import NOWHERE
from penstock.lanes.punctuation import NEVER
from penstock.records import NO_TIMESTAMP
from penstock.state import Register


class Waiting(NamedTuple):
    """A node that waits for the application's watermark: for which one, and what it does when one is reached."""

    due: Callable[[], int]
    reach: Callable[[int], None]


class LaneWatermark:
    """The watermarks that nodes go by.

    `time` is that before the record in hand, which it brought along from its source; -1 if it brought none. It is that of the
    partition it came from, or the highest event time where the source has no watermarks but others have. `floor` is the
    application's watermark. `limits` are those up to which stores keep windows, where watermarks tell it.
    """

    __slots__ = ("_cursor", "_limits", "_waiting", "floor", "time")

    def __init__(self, watermark: int | None, limits: Iterable[Register], cursor: Cursor) -> None:
        self.time: int = NO_TIMESTAMP
        self.floor: int = NO_TIMESTAMP if watermark is None else watermark
        self._limits = tuple(limits)
        self._cursor = cursor
        self._waiting: list[Waiting] = []

    @property
    def due(self) -> int | None:
        """At which watermark something happens next: a timer, or a window that closes; None if nothing waits for one."""
        return min((due for waiting in self._waiting if (due := waiting.due()) < NEVER), default=None)

    def wait_above(self, due: Callable[[], int], reach: Callable[[int], None]) -> None:
        """Let one more node hear of the application's watermark, which stands above those there are."""
        self._waiting.insert(0, Waiting(due, reach))

    def advance(self, watermark: int, settle: Callable[[], None]) -> None:
        """Let the application's watermark be this. What waits for it happens node by node, parents before children.

        What a node sends on then is not late for those below: they hear of the watermark after it. Caches hold nothing back
        meanwhile, which is what `settle` is for.
        """
        cursor = self._cursor
        cursor.position = NOWHERE
        if self._waiting:
            settle()  # what earlier stages have sent because of it
        for waiting in self._waiting:
            if waiting.due() <= watermark:
                cursor.position = NOWHERE
                waiting.reach(watermark)
                settle()
        self.floor = watermark
        for limit in self._limits:
            limit.value = watermark


class WatermarkClock:
    """Time as watermarks tell it, where they do: that of the partition before the record in hand, and at least that of all."""

    __slots__ = ("_watermark",)

    def __init__(self, watermark: LaneWatermark) -> None:
        self._watermark = watermark

    @property
    def time(self) -> int:
        """What is late is before this."""
        watermark = self._watermark
        return max(watermark.floor, watermark.time)

    def observe(self, timestamp: int) -> int:
        """The time, which no record's timestamp moves."""
        watermark = self._watermark
        return max(watermark.floor, watermark.time)
