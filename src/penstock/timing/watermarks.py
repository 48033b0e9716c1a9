"""Watermarks as values: how a source partition tells how far event time has come, and how partitions' tellings are combined.

A watermark of T says that no record before T is expected any more. A partition's follows from its records alone, in the order
of their offsets; the application's is the lowest of those that are not idle, and never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.errors import TopologyError
from penstock.records import NO_TIMESTAMP, SourceRecord
from penstock.timing.durations import Duration, duration_ms

P = TypeVar("P", bound=Hashable)

WatermarkFunction = Callable[[SourceRecord[Any, Any]], "int | None"]
"""`function(record) -> watermark_ms`, or None where a record tells nothing; a lower one than before changes nothing."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How a source's partitions tell how far event time has come; made by `bounded_disorder`, `monotonous`, `watermark_from`.

    Attributes:
        disorder_ms: By how much records may be out of order.
        idle_ms: After so long without records a partition that is read to its end holds nothing back; None: it always does.
        follows_wall_clock: When every input is idle, time goes on by the wall clock, so that windows close when input stops.
        align_ms: A partition that is ahead of others by more waits until they have come; None: none waits.
        function: What tells the watermark; None: the highest event time so far, less `disorder_ms`.
    """

    disorder_ms: int = 0
    idle_ms: int | None = None
    follows_wall_clock: bool = False
    function: WatermarkFunction | None = None
    align_ms: int | None = None

    def __post_init__(self) -> None:
        if self.disorder_ms < 0:
            raise TopologyError(f"records cannot be out of order by {self.disorder_ms} ms")
        if self.idle_ms is not None and self.idle_ms < 1:
            raise TopologyError("idle is a duration of at least 1 ms: leave it out for a source that may be silent for any time")
        if self.follows_wall_clock and self.idle_ms is None:
            raise TopologyError("follow_wall_clock needs idle: it begins when every input has been silent for that long")
        if self.align_ms is not None and self.align_ms < 0:
            raise TopologyError(f"partitions cannot be {self.align_ms} ms ahead of each other")


def bounded_disorder(
    disorder: Duration, *, idle: Duration | None = None, follow_wall_clock: bool = False, align: Duration | None = None
) -> Watermark:
    """Records come at most `disorder` after others with a higher event time.

    A partition without records for `idle` that is read to its end no longer holds the others back. With `follow_wall_clock`,
    once every input is idle, time goes on by the wall clock (less `disorder`): windows close when input stops. A replay is
    read to its end only once, when it is over, so it gives what the live run gave. With `align`, a partition whose watermark is
    further ahead of the slowest one that has records waits for it, so that a replay does not keep the windows of days open.

    Example:
        >>> bounded_disorder("10s", idle="30s").idle_ms
        30000
    """
    return Watermark(duration_ms(disorder), _optional(idle), follow_wall_clock, align_ms=_optional(align))


def monotonous(*, idle: Duration | None = None, follow_wall_clock: bool = False, align: Duration | None = None) -> Watermark:
    """Event times never go back within a partition: `bounded_disorder(0)`.

    Example:
        >>> monotonous() == bounded_disorder(0)
        True
    """
    return Watermark(0, _optional(idle), follow_wall_clock, align_ms=_optional(align))


def watermark_from(
    function: WatermarkFunction,
    *,
    idle: Duration | None = None,
    follow_wall_clock: bool = False,
    align: Duration | None = None,
) -> Watermark:
    """Records tell it themselves: `function(record)` gives epoch milliseconds, or None where one tells nothing.

    Example:
        >>> strategy = watermark_from(lambda record: record.value["closed_until"], idle="1m")
        >>> strategy.disorder_ms
        0
    """
    return Watermark(0, _optional(idle), follow_wall_clock, function, _optional(align))


def _optional(duration: Duration | None) -> int | None:
    return None if duration is None else duration_ms(duration)


class WatermarkTracker(Generic[P]):
    """The application's watermark, from those of its source partitions.

    `partitions` are those whose source has a strategy; `started_at` counts as the last time each was heard of, so that a start
    waits for every input as long as a pause in it would. Times are in milliseconds, and are given: no clock ticks here.

    Example:
        >>> tracker = WatermarkTracker({"a": bounded_disorder(5), "b": monotonous(idle=100)}, started_at=0)
        >>> tracker.heard("a", 40, at=1), tracker.advance(at=50)
        (None, -1)
        >>> tracker.advance(at=200)  # b has been silent for long enough
        40
    """

    def __init__(
        self,
        partitions: Mapping[P, Watermark],
        *,
        started_at: int,
        known: Mapping[P, int] | None = None,
        reached: int = NO_TIMESTAMP,
    ) -> None:
        self.reached = reached
        self._strategies = dict(partitions)
        self.watermarks = {partition: (known or {}).get(partition, NO_TIMESTAMP) for partition in partitions}
        self._heard_at = dict.fromkeys(partitions, started_at)

    def add(self, partition: P, strategy: Watermark, *, at: int) -> None:
        """One more partition."""
        self._strategies[partition] = strategy
        self.watermarks[partition], self._heard_at[partition] = NO_TIMESTAMP, at

    def heard(self, partition: P, watermark: int, *, at: int) -> None:
        """Records came, with which the partition's watermark is this."""
        self._heard_at[partition] = at
        self.watermarks[partition] = max(watermark, self.watermarks[partition])

    def lag(self, behind: frozenset[P], *, at: int) -> None:
        """Which partitions are not read to their end: none of them is idle, however long nothing came."""
        for partition in behind & self._heard_at.keys():
            self._heard_at[partition] = at

    def is_idle(self, partition: P, *, at: int) -> bool:
        """Whether nothing has come from a partition for so long that nobody waits for it."""
        idle_ms = self._strategies[partition].idle_ms
        return idle_ms is not None and at - self._heard_at[partition] >= idle_ms

    def advance(self, *, at: int) -> int:
        """The application's watermark at this moment."""
        awake = [watermark for partition, watermark in self.watermarks.items() if not self.is_idle(partition, at=at)]
        if awake:
            self.reached = max(self.reached, min(awake))
        elif all(strategy.follows_wall_clock for strategy in self._strategies.values()):
            self.reached = max(self.reached, at - max(strategy.disorder_ms for strategy in self._strategies.values()))
        return self.reached

    def ahead(self, available: Collection[P]) -> frozenset[P]:
        """Which of the partitions that have records are so far ahead of the slowest of them that they have to wait.

        Never all: the slowest goes on.
        """
        known = [partition for partition in available if partition in self.watermarks]
        lowest = min((self.watermarks[partition] for partition in known), default=NO_TIMESTAMP)
        limits = ((partition, self._strategies[partition].align_ms) for partition in known)
        return frozenset(
            partition for partition, align in limits if align is not None and self.watermarks[partition] - lowest > align
        )
