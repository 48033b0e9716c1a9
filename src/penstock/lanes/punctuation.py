"""The punctuators of a lane, called when stream time or the wall clock advances."""

from __future__ import annotations

from collections.abc import Callable

from penstock.lanes.heap import TimeHeap
from penstock.state import Register

NEVER = 2**63 - 1


class Schedule:
    """One punctuator, which continues where the last epoch ended.

    Registers have the time when it is due next and its place among others: which of two punctuators with the same time is called
    first depends on earlier calls, and must not depend on where epochs end. The next processor finds those of the shard's state;
    what a processor has scheduled after `init` ends with it. What a register has for a cancelled one, `cancelled_as`, says which
    start has cancelled it: the next start schedules it anew, as Kafka Streams does. `callback` is the user's, and `punctuate`
    calls it in the current lane.
    """

    __slots__ = (
        "_cancelled_as",
        "_register",
        "by_stream_time",
        "callback",
        "cancelled",
        "due",
        "interval_ms",
        "is_late",
        "place",
        "punctuate",
    )

    def __init__(
        self,
        register: Register,
        place: Register,
        interval_ms: int,
        by_stream_time: bool,
        callback: Callable[[int], None],
        cancelled_as: int,
        *,
        is_late: bool = False,
    ) -> None:
        self._register = register
        self._cancelled_as = cancelled_as
        self.cancelled: bool = register.value == cancelled_as
        self.place: Register = place
        self.due: int = NEVER if self.cancelled else register.value
        self.interval_ms: int = interval_ms
        self.by_stream_time: bool = by_stream_time
        self.is_late: bool = is_late
        self.callback: Callable[[int], None] = callback
        self.punctuate: Callable[[int], None] = callback

    def cancel(self) -> None:
        """Cancel the punctuator, until the next start."""
        self.cancelled = True
        self._register.value = self._cancelled_as

    def advance(self, now: int) -> None:
        """Move to the next time after `now`; missed intervals are skipped."""
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
        """When the next one is due; None if there is none."""
        return min((schedule.due for schedule in self._heap if not schedule.cancelled), default=None)

    def add(self, schedule: Schedule) -> None:
        """Add a punctuator."""
        self._heap.push(schedule)

    def fire(self, now: int) -> None:
        """Call each punctuator that is due once."""
        heap = self._heap
        earliest = heap.peek()
        if earliest is None or earliest.due > now:
            return
        while (schedule := heap.peek()) is not None and schedule.due <= now:
            heap.pop()
            if not schedule.cancelled:
                schedule.punctuate(now)
                if not schedule.cancelled:
                    schedule.advance(now)
                    heap.push(schedule)
        self.note_places()

    def note_places(self) -> None:
        """Note the order of the punctuators."""
        for place, schedule in enumerate(self._heap):
            schedule.place.value = place

    def restore_places(self) -> None:
        """Restore the order of the punctuators at the end of the last epoch; new ones keep their order."""
        if len(self._heap) > 1:
            ordered = sorted(self._heap, key=lambda schedule: schedule.place.value)
            self._heap = TimeHeap(lambda schedule: schedule.due)
            for schedule in ordered:
                self._heap.push(schedule)
