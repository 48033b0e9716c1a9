"""The timers of a lane: which timer of all its nodes fires next."""

from __future__ import annotations

from penstock.hosted import TimerKind, TimerQueue


class LaneTimers:
    """The timers of all nodes of a lane, in topological order of the nodes."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: list[TimerQueue] = []

    def add_above(self, queue: TimerQueue) -> None:
        """Add the timers of a node that is above all nodes added so far."""
        self.queues.insert(0, queue)

    def fire(self, kind: TimerKind, now: int) -> bool:
        """Fire all timers that are due by a clock, ordered by time; at equal times, those of the upper node first.

        Timers that become due meanwhile fire, too. Return whether a node has held some back for the next call.
        """
        if len(self.queues) == 1:
            self.queues[0].fire(kind, now)
        else:
            while (queue := self._next(kind, now)) is not None:
                queue.fire(kind, now, most=1)
        is_held = False
        for queue in self.queues:
            is_held |= queue.release()
        return is_held

    def earliest(self, kind: TimerKind) -> int | None:
        """Return the time before which no timer of a clock is due; None if there is none."""
        return min((time for queue in self.queues if (time := queue.earliest(kind)) is not None), default=None)

    def _next(self, kind: TimerKind, now: int) -> TimerQueue | None:
        earliest, found = now + 1, None
        for queue in self.queues:
            time = queue.first(kind, now)
            if time is not None and time < earliest:
                earliest, found = time, queue
        return found
