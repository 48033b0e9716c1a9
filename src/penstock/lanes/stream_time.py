"""The stream time of one sub-topology in one shard, as a task of Kafka Streams has it, and what follows it."""

from __future__ import annotations

from typing import Any

from penstock.lanes.punctuation import Punctuators
from penstock.lanes.timers import LaneTimers
from penstock.processor import TimerKind
from penstock.records import NO_TIMESTAMP
from penstock.state import Register


class StreamTime:
    """The highest event time that came by, -1 before the first; with the punctuators, timers and stores that go by it.

    `timers` are those of nodes whose event time it is, and not the application's watermark. `expiring` are stores with a TTL.
    """

    __slots__ = ("_register", "expiring", "punctuators", "timers")

    def __init__(self, register: Register) -> None:
        self._register = register
        self.punctuators: Punctuators = Punctuators()
        self.timers: LaneTimers = LaneTimers()
        self.expiring: list[Any] = []

    @property
    def value(self) -> int:
        """The time now."""
        return self._register.value

    def reach(self, time: int) -> None:
        """Let it come as far, and with it what expires."""
        if time > self._register.value:  # noqa: PLR1730 # at every record: no call
            self._register.value = time
        for store in self.expiring:
            store.observe(time)

    def fire_punctuators(self) -> bool:
        """Call the punctuators that have become due; whether there are any."""
        if not self.punctuators or self.value == NO_TIMESTAMP:
            return False
        self.punctuators.fire(self.value)
        return True

    def fire_timers(self) -> bool:
        """Fire the timers that have become due; whether there are any."""
        if not self.timers.queues:
            return False
        self.timers.fire(TimerKind.EVENT_TIME, self.value)
        return True
