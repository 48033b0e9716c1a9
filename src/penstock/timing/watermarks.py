"""Watermarks as values: how a source partition's event time progresses, and how the partitions' watermarks are combined.

A watermark of T means that no more records before T are expected. A partition's watermark follows from its records alone, in
offset order; the application's is the lowest of those that are not idle, and never goes back.
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
"""`function(record) -> watermark_ms`, or None for no change; a lower watermark than before is ignored."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How the watermark of a source's partitions is computed; see `bounded_disorder`, `monotonous`, `watermark_from`.

    Attributes:
        disorder_ms: How much records may be out of order.
        idle_ms: A partition without records for this long, read to its end, holds nothing back; None: it always does.
        follows_wall_clock: When every input is idle, time follows the wall clock, so that windows close when input stops.
        align_ms: A partition further ahead of the slowest than this waits for it; None: no partition waits.
        function: Computes the watermark; None: the highest event time so far, less `disorder_ms`.
    """

    disorder_ms: int = 0
    idle_ms: int | None = None
    follows_wall_clock: bool = False
    function: WatermarkFunction | None = None
    align_ms: int | None = None

    def __post_init__(self) -> None:
        if self.disorder_ms < 0:
            raise TopologyError(f"The disorder of a watermark must not be negative, got {self.disorder_ms} ms.")
        if self.idle_ms is not None and self.idle_ms < 1:
            raise TopologyError("idle= must be at least 1 ms. Omit it for a source that is never idle.")
        if self.follows_wall_clock and self.idle_ms is None:
            raise TopologyError(
                "follow_wall_clock=True needs idle=: time follows the wall clock once every input has been idle for that long."
            )
        if self.align_ms is not None and self.align_ms < 0:
            raise TopologyError(f"align= must not be negative, got {self.align_ms} ms.")


def bounded_disorder(
    disorder: Duration, *, idle: Duration | None = None, follow_wall_clock: bool = False, align: Duration | None = None
) -> Watermark:
    """Return a watermark for records that arrive at most `disorder` after others with a higher event time.

    A partition that is read to its end and has no records for `idle` no longer holds the others back. With `follow_wall_clock`,
    once every input is idle, time follows the wall clock (less `disorder`), so windows close when input stops. A replay reaches
    the end of its input only once, so it gives the same results as the live run. With `align`, a partition whose watermark is
    more than that ahead of the slowest one with records waits for it, so that a replay does not keep days of windows open.

    Example:
        >>> bounded_disorder("10s", idle="30s").idle_ms
        30000
    """
    return Watermark(duration_ms(disorder), _optional(idle), follow_wall_clock, align_ms=_optional(align))


def monotonous(*, idle: Duration | None = None, follow_wall_clock: bool = False, align: Duration | None = None) -> Watermark:
    """Return a watermark for event times that never go back within a partition: `bounded_disorder(0)`.

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
    """Return a watermark taken from the records: `function(record)` returns epoch milliseconds, or None for no change.

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

    `partitions` are those whose source has a strategy; `started_at` counts as the time of their last record, so that a start
    waits for each input as long as a pause would. Times are arguments, in milliseconds; the tracker reads no clock.

    Example:
        >>> tracker = WatermarkTracker({"a": bounded_disorder(5), "b": monotonous(idle=100)}, started_at=0)
        >>> tracker.heard("a", 40, at=1), tracker.advance(at=50)
        (None, -1)
        >>> tracker.advance(at=200)  # b is idle
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
        self.reached: int = reached
        self._strategies = dict(partitions)
        self.watermarks: dict[P, int] = {partition: (known or {}).get(partition, NO_TIMESTAMP) for partition in partitions}
        self._heard_at = dict.fromkeys(partitions, started_at)

    def add(self, partition: P, strategy: Watermark, *, at: int) -> None:
        """Add a partition."""
        self._strategies[partition] = strategy
        self.watermarks[partition], self._heard_at[partition] = NO_TIMESTAMP, at

    def heard(self, partition: P, watermark: int, *, at: int) -> None:
        """Note that records arrived and the partition's watermark after them."""
        self._heard_at[partition] = at
        self.watermarks[partition] = max(watermark, self.watermarks[partition])

    def lag(self, behind: frozenset[P], *, at: int) -> None:
        """Note which partitions are not read to their end: these are not idle, however long ago their last record was."""
        for partition in behind & self._heard_at.keys():
            self._heard_at[partition] = at

    def is_idle(self, partition: P, *, at: int) -> bool:
        """Return whether a partition has had no records for so long that it holds nothing back."""
        idle_ms = self._strategies[partition].idle_ms
        return idle_ms is not None and at - self._heard_at[partition] >= idle_ms

    def advance(self, *, at: int) -> int:
        """Return the application's watermark at this time."""
        awake = [watermark for partition, watermark in self.watermarks.items() if not self.is_idle(partition, at=at)]
        if awake:
            self.reached = max(self.reached, min(awake))
        elif all(strategy.follows_wall_clock for strategy in self._strategies.values()):
            self.reached = max(self.reached, at - max(strategy.disorder_ms for strategy in self._strategies.values()))
        return self.reached

    def ahead(self, available: Collection[P]) -> frozenset[P]:
        """Return which partitions with records are so far ahead of the slowest one that they must wait.

        Never all of them: the slowest does not wait.
        """
        known = [partition for partition in available if partition in self.watermarks]
        lowest = min((self.watermarks[partition] for partition in known), default=NO_TIMESTAMP)
        limits = ((partition, self._strategies[partition].align_ms) for partition in known)
        return frozenset(
            partition for partition, align in limits if align is not None and self.watermarks[partition] - lowest > align
        )
