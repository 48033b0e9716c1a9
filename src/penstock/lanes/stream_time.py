"""The stream time of one sub-topology in one shard, as in a task of Kafka Streams, and what follows it."""

from __future__ import annotations

from typing import Any

from penstock.hosted import TimerKind, TimerQueue
from penstock.lanes.punctuation import Punctuators
from penstock.lanes.timers import LaneTimers
from penstock.records import NO_TIMESTAMP
from penstock.state import Register, TimerFront


class StreamTime:
    """The highest event time so far, -1 before the first record, with the punctuators, timers and stores that follow it.

    `timers` are those of nodes whose event time is the stream time, not the application's watermark. `expiring` are stores with
    a TTL.
    """

    __slots__ = ("_fronts", "_register", "expiring", "punctuators", "timers")

    def __init__(self, register: Register) -> None:
        self._register = register
        self._fronts: list[TimerFront] = []
        self.punctuators: Punctuators = Punctuators()
        self.timers: LaneTimers = LaneTimers()
        self.expiring: list[Any] = []

    @property
    def value(self) -> int:
        """The current stream time."""
        return self._register.value

    def add_timers(self, queue: TimerQueue) -> None:
        """Add the timers of a node that is above all nodes added so far."""
        self.timers.add_above(queue)
        self._fronts.append(queue.front(TimerKind.EVENT_TIME))

    @property
    def is_awaited(self) -> bool:
        """Whether a punctuator or a timer may be due."""
        now = self._register.value
        for front in self._fronts:  # runs for every record: no call
            if front.earliest <= now:
                return True
        return len(self.punctuators) > 0

    def reach(self, time: int) -> None:
        """Advance to a time if that is later, and expire entries."""
        if time > self._register.value:  # noqa: PLR1730 # runs for every record: no call
            self._register.value = time
        for store in self.expiring:
            store.observe(time)

    def fire_punctuators(self) -> bool:
        """Call the punctuators that are due; return whether there are punctuators."""
        if not self.punctuators or self.value == NO_TIMESTAMP:
            return False
        self.punctuators.fire(self.value)
        return True

    def fire_timers(self) -> bool:
        """Fire the timers that are due; return whether there are queues of timers."""
        if not self.timers.queues:
            return False
        self.timers.fire(TimerKind.EVENT_TIME, self.value)
        return True
