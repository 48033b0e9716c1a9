"""The `HostTime` a lane gives to one node."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import ATTRIBUTED, FAILURES
from penstock.hosted import Scheduled, TimerKind, TimerQueue
from penstock.lanes.circuit import Circuit
from penstock.lanes.clocks import Clocks
from penstock.lanes.punctuation import NEVER, Punctuators, Schedule
from penstock.lanes.timers import LaneTimers
from penstock.processor import Clock, PunctuationType
from penstock.records import NO_TIMESTAMP
from penstock.state import Register
from penstock.topology.nodes import Node


class NodeTime:
    """The clocks of a lane for one node, and what the node schedules by them."""

    __slots__ = ("_circuit", "_clocks", "_node", "_schedules", "wall_clock")

    def __init__(self, node: Node, circuit: Circuit, clocks: Clocks) -> None:
        self._node = node
        self._circuit = circuit
        self._clocks = clocks
        self._schedules = 0
        self.wall_clock: Callable[[], int] = clocks.wall_clock
        """The time of the host's clock."""

    def clock(self, name: str) -> Clock:
        """Return a named stream clock of the lane."""
        return self._clocks.clock(name, self.has_watermarks)

    def stream_time(self) -> int:
        """Return the stream time of the node's sub-topology."""
        return self._clocks.stream_time_of(self._node.name).value

    def event_time(self) -> int:
        """Return the time of event-time timers."""
        return self._clocks.watermark.floor if self.has_watermarks else self.stream_time()

    @property
    def has_watermarks(self) -> bool:
        """Whether a source above the node declares a watermark."""
        return self._clocks.has_watermarks(self._node.name)

    def wait_for_watermark(self, due: Callable[[], int], reach: Callable[[int], None]) -> None:
        """Call `reach` with the application's watermark once it is `due`; never if no source above the node declares one."""
        if self.has_watermarks:  # nodes are bound from last to first, so this one is above those bound so far
            self._clocks.watermark.wait_above(due, lambda watermark: self._between_records(reach, watermark))

    def add_timers(self, queue: TimerQueue) -> None:
        """Add the node's timers. Nodes are bound from last to first, so this one is above those bound so far."""
        self._clocks.timers.add_above(queue)
        if not self.has_watermarks:
            self._clocks.stream_time_of(self._node.name).add_timers(queue)
            return
        own = LaneTimers()
        own.add_above(queue)

        def fire(watermark: int) -> None:
            own.fire(TimerKind.EVENT_TIME, watermark)

        self.wait_for_watermark(lambda: _or_never(queue.earliest(TimerKind.EVENT_TIME)), fire)

    def schedule(
        self,
        interval_ms: int,
        kind: PunctuationType,
        punctuate: Callable[[int], None],
        start_ms: int | None = None,
        *,
        is_late: bool = False,
    ) -> Schedule:
        """Call `punctuate` at every interval, anchored at `start_ms` if given; see `HostTime.schedule`."""
        name = self._node.name
        if interval_ms < 1:
            raise ValueError(f"{name}: the interval of a punctuator must be at least 1 ms, got {interval_ms} ms.")
        clocks = self._clocks
        by_stream_time = PunctuationType(kind) is PunctuationType.STREAM_TIME
        stream_time = clocks.stream_time_of(name)
        now = stream_time.value if by_stream_time else clocks.wall_clock()
        if start_ms is not None:
            due = start_ms
        else:
            due = 0 if by_stream_time else now + interval_ms

        next_due, place = (Register(due), Register(0)) if is_late else self._registers(due)
        is_new = next_due.value == due
        schedule = Schedule(next_due, place, interval_ms, by_stream_time, punctuate, clocks.cancelled_as, is_late=is_late)
        if is_new and start_ms is not None and start_ms < now != NO_TIMESTAMP:
            schedule.advance(now)
        self._add(schedule)
        if is_late:
            self._punctuators_of(schedule).note_places()
        return schedule

    def resume(self, scheduled: Scheduled) -> None:
        """Go on calling what was scheduled in an earlier lane."""
        assert isinstance(scheduled, Schedule)
        self._add(scheduled)

    def _registers(self, due: int) -> tuple[Register, Register]:
        """Return the registers of what `init` schedules next: when it is due, and its place."""
        self._schedules += 1
        name, register = f"{self._node.name}/punctuator {self._schedules}", self._circuit.stores.register
        next_due = register(name, due)
        if next_due.value < NO_TIMESTAMP and next_due.value != self._clocks.cancelled_as:
            next_due.value = due  # an earlier start has cancelled it
        return next_due, register(f"{name}/place", 0)

    def _add(self, schedule: Schedule) -> None:
        callback = schedule.callback
        schedule.punctuate = lambda time: self._between_records(callback, time)
        self._punctuators_of(schedule).add(schedule)

    def _punctuators_of(self, schedule: Schedule) -> Punctuators:
        clocks = self._clocks
        return clocks.stream_time_of(self._node.name).punctuators if schedule.by_stream_time else clocks.wall_clock_punctuators

    def _between_records(self, callback: Callable[[int], None], time: int) -> None:
        """Call a callback between records; its failure is the node's."""
        try:
            callback(time)
        except ATTRIBUTED:
            raise
        except FAILURES as error:
            self._circuit.failures.processing(self._node, error, None)


def _or_never(time: int | None) -> int:
    return NEVER if time is None else time
