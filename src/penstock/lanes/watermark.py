"""The watermarks of a lane: the application's, that of the current record, and the nodes that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from penstock.lanes.cursor import Cursor
from penstock.lanes.position import NOWHERE
from penstock.lanes.punctuation import NEVER
from penstock.records import NO_TIMESTAMP
from penstock.state import Register


class Waiting(NamedTuple):
    """A node that waits for the application's watermark: which one it needs, and what to call when that is reached."""

    due: Callable[[], int]
    reach: Callable[[int], None]


class LaneWatermark:
    """The watermarks that nodes follow.

    `time` is the watermark before the current record, which the record carries from its source; -1 if it has none. It is that of
    the record's partition, or the highest event time if its source has no watermark but others have. `floor` is the application's
    watermark. `limits` are the registers that say how long stores keep windows, for stores that follow the watermark.
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
        """The next watermark that a timer or a window waits for; None if none does."""
        return min((due for waiting in self._waiting if (due := waiting.due()) < NEVER), default=None)

    def wait_above(self, due: Callable[[], int], reach: Callable[[int], None]) -> None:
        """Add a node that waits for the application's watermark, above all nodes added so far."""
        self._waiting.insert(0, Waiting(due, reach))

    def advance(self, watermark: int) -> Iterator[bool]:
        """Advance the application's watermark. The nodes that wait for it are called one by one, parents before children.

        Yields before the first node, and after each, whether caches are to be flushed: what earlier stages and a node have sent
        because of this watermark is not late for the nodes below, which are called after it.
        """
        cursor = self._cursor
        cursor.position = NOWHERE
        yield bool(self._waiting)
        for waiting in self._waiting:
            is_due = waiting.due() <= watermark
            if is_due:
                cursor.position = NOWHERE
                waiting.reach(watermark)
            yield is_due
        self.floor = watermark
        for limit in self._limits:
            limit.value = watermark


class WatermarkClock:
    """The time by watermarks: that of the partition before the current record, and at least the application's."""

    __slots__ = ("_watermark",)

    def __init__(self, watermark: LaneWatermark) -> None:
        self._watermark = watermark

    @property
    def time(self) -> int:
        """The time; earlier records are late."""
        watermark = self._watermark
        return max(watermark.floor, watermark.time)

    def observe(self, timestamp: int) -> int:
        """Return the time, which the timestamps of records do not change."""
        watermark = self._watermark
        return max(watermark.floor, watermark.time)
