"""What nodes give to their lane, for it to call or to keep: timers, punctuators, and the user's objects."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock.state import TimerFront


class TimerKind(IntEnum):
    """Which clock a timer fires by."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerQueue(Protocol):
    """The timers of one node, as the lane sees them."""

    def front(self, kind: TimerKind) -> TimerFront:
        """The first of a clock's timers, always the same object: none is due before its `earliest`."""

    def earliest(self, kind: TimerKind) -> int | None:
        """A lower bound of the times of a clock's timers; None if there are none."""

    def first(self, kind: TimerKind, now: int) -> int | None:
        """The time of the first of a clock's timers that is due; None if none is due."""

    def fire(self, kind: TimerKind, now: int, most: int | None = None) -> None:
        """Fire a clock's timers that are due, in order, including those that become due meanwhile; `most` limits their number."""

    def release(self) -> bool:
        """End the round: timers held back in it may fire in the next; return whether there were any."""


class Scheduled(Protocol):
    """A punctuator that is scheduled."""

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""

    @property
    def is_late(self) -> bool:
        """Whether it was scheduled after `init`."""

    def cancel(self) -> None:
        """Cancel it."""


class Resident(Protocol):
    """What stays in a process from epoch to epoch: a user's object."""

    @property
    def user_object(self) -> Any:
        """The object of the user's class."""

    @property
    def has_rescheduled(self) -> bool:
        """Whether it has other punctuators now than after `init`: another object would not have them, or have more."""

    def close(self) -> None:
        """Close it, if it has begun."""
