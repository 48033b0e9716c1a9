"""Punctuators of a lane: who is called when stream time or the wall clock moves."""

from __future__ import annotations

from collections.abc import Callable

from penstock.lanes.heap import TimeHeap
from penstock.state import Register

NEVER = 2**63 - 1


class Schedule:
    """One punctuator; when it is due next belongs to the lane's state, so that it goes on where the last epoch ended."""

    __slots__ = ("_register", "cancelled", "due", "interval_ms", "punctuate")

    def __init__(self, register: Register, interval_ms: int, punctuate: Callable[[int], None]) -> None:
        self._register = register
        self.due = register.value
        self.interval_ms = interval_ms
        self.punctuate = punctuate
        self.cancelled = register.value == NEVER

    def cancel(self) -> None:
        """Never fire again."""
        self.cancelled = True
        self._register.value = NEVER

    def advance(self, now: int) -> None:
        """The next time after `now`; intervals that were missed are not made up for."""
        missed = (now - self.due) // self.interval_ms if now >= self.due + self.interval_ms else 0
        self.due += (missed + 1) * self.interval_ms
        self._register.value = self.due


class Punctuators:
    """The punctuators of one clock."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: TimeHeap[Schedule] = TimeHeap(lambda schedule: schedule.due)

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_due(self) -> int | None:
        """When the next one is due; None if none is."""
        schedule = self._heap.peek()
        return None if schedule is None or schedule.cancelled else schedule.due

    def add(self, schedule: Schedule) -> None:
        """Have one more called."""
        self._heap.push(schedule)

    def fire(self, now: int) -> None:
        """Call everything that is due, each once."""
        heap = self._heap
        while (schedule := heap.peek()) is not None and schedule.due <= now:
            heap.pop()
            if not schedule.cancelled:
                schedule.punctuate(now)
                if not schedule.cancelled:
                    schedule.advance(now)
                    heap.push(schedule)
