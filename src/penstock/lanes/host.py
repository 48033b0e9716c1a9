"""The `Host` a lane gives to one node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from penstock.calls import Call, Request
from penstock.errors import ATTRIBUTED, ProcessingError, TopologyError
from penstock.handlers import ErrorHandler, FailureKind
from penstock.lanes.failures import failure_at, named
from penstock.lanes.position import AtTimer
from penstock.lanes.punctuation import NEVER, Schedule
from penstock.lanes.shared import LaneSharedStore
from penstock.lanes.timers import LaneTimers
from penstock.processor import Clock, PunctuationType, TimerKind, TimerQueue, View
from penstock.records import NO_TIMESTAMP, Headers, Process, RecordMetadata
from penstock.state import Register, StoreSpec
from penstock.topology.nodes import Node, ProcessorNode

if TYPE_CHECKING:
    from penstock.lanes.lane import Lane


class NodeHost:
    """What one node of a lane may use."""

    __slots__ = ("_lane", "_node", "_schedules", "_shared", "children", "shared_writes", "side_outputs")

    def __init__(self, lane: Lane, node: Node) -> None:
        self._lane = lane
        self._node = node
        self._schedules = 0
        self.children: dict[str, Process] = {}
        self.side_outputs: dict[str, Process] = {}
        self.shared_writes: dict[str, Process] = {}
        self._shared: dict[str, LaneSharedStore] = {}

    @property
    def node(self) -> str:
        """The node's name."""
        return self._node.name

    def store(self, name: str) -> Any:
        """A store of the lane."""
        return self._lane.store(name)

    def user_store(self, name: str) -> Any:
        """A store for user code: it must have been connected to the node."""
        node = self._node
        if isinstance(node, ProcessorNode) and any(name == shared for shared, _ in node.shared):
            return self._lane.store(name) if node.operator.runs_serially else self._shared_store(name)
        if isinstance(node, ProcessorNode) and name not in node.stores and not self._lane.is_global(name):
            self._lane.spec(name)
            raise TopologyError(
                f"{node.name} uses store {name!r} without being connected to it ({node.line}); "
                f"add it to stores=[...] where the processor is declared"
            )
        return self._lane.store(name)

    def _shared_store(self, name: str) -> LaneSharedStore:
        found = self._shared.get(name)
        if found is None:
            found = LaneSharedStore(self._lane.spec(name), self.node, self._lane, self.shared_writes.get(name))
            self._shared[name] = found
        return found

    def spec(self, name: str) -> StoreSpec:
        """What a store was declared as."""
        return self._lane.spec(name)

    def child(self, name: str) -> Process:
        """One child by name."""
        try:
            return self.children[name]
        except KeyError:
            known = ", ".join(self.children) or "none"
            raise TopologyError(f"{self.node} has no child {name!r}; its children are: {known}") from None

    def side_output(self, name: str) -> Process:
        """Where records sent aside under a name go."""
        found = self.side_outputs.get(name)
        if found is None:
            declared = ", ".join(self.side_outputs) or "none"
            raise TopologyError(
                f"{self.node} sends a record to side output {name!r}, which nobody declared ({self._node.line}); declare it by "
                f"side_output({name!r}) on the stream that the node gives. Declared are: {declared}"
            )
        return found

    def view(self, table: str) -> View:
        """How to read a table."""
        return self._lane.view(table)

    def failed(self, error: Exception, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """User code failed."""
        self._lane.failures.processing(self._lane, self._node, error, key)

    def late(self, handler: ErrorHandler, error: Exception, key: Any) -> None:
        """A record came too late."""
        self._lane.failures.late(self._lane, self._node, handler, error, key)

    def dropped(self, reason: str) -> None:
        """A record was skipped."""
        self._lane.drop(self._node.name, reason)

    def pending(self, store: str, flush: Callable[[dict[Any, Any]], None]) -> dict[Any, Any]:
        """Changes that wait for the end of the epoch."""
        waiting = self._lane.pending(store)
        self.on_flush(store, lambda: flush(waiting))
        return waiting

    def on_flush(self, store: str, flush: Callable[[], None]) -> None:
        """When the epoch ends.

        No handler is asked if that fails: what a store cannot write of all that an epoch brought is not one record's failure.
        """

        def attributed() -> None:
            try:
                flush()
            except ATTRIBUTED:
                raise
            except Exception as error:
                failure = failure_at(self._lane, FailureKind.PROCESSING, self._node, error)
                raise named(failure, self._node, None) from error

        self._lane.on_flush(store, attributed)

    def asking(self, call: Call, take: Callable[[Request, Any], None]) -> Callable[[Request], None]:
        """Calls that are made when the epoch ends."""
        return self._lane.asking(self._node, call, take).ask

    def on_start(self, start: Callable[[], None]) -> None:
        """When the lane is bound."""

        def attributed() -> None:
            try:
                start()
            except ATTRIBUTED:
                raise
            except Exception as error:
                raise ProcessingError(
                    f"{self.node} failed to start: {type(error).__name__}: {error}\n  the node was declared at {self._node.line}"
                ) from error

        self._lane.on_start(attributed)

    @property
    def has_watermarks(self) -> bool:
        """Whether a source above the node tells watermarks."""
        return self._node.name in self._lane.watermarked

    def wait_for_watermark(self, due: Callable[[], int], reach: Callable[[int], None]) -> None:
        """Have `reach` called with the application's watermark once that is `due`; never where no source tells any."""
        if self.has_watermarks:
            self._lane.wait_for_watermark(due, lambda watermark: self._between_records(reach, watermark))

    def add_timers(self, queue: TimerQueue) -> None:
        """Have the node's timers fire. Binding goes from the last node to the first, so this one stands above all others."""
        self._lane.timers.add_above(queue)
        if not self.has_watermarks:
            self._lane.stream_time_of(self.node).timers.add_above(queue)
            return
        own = LaneTimers()
        own.add_above(queue)

        def fire(watermark: int) -> None:
            own.fire(TimerKind.EVENT_TIME, watermark)

        self.wait_for_watermark(lambda: _or_never(queue.earliest(TimerKind.EVENT_TIME)), fire)

    def at_timer(self, key: bytes, time: int) -> None:
        """A timer is in hand."""
        self._lane.position = AtTimer(key, time)

    def owns(self, key: bytes) -> bool:
        """Whether a key is the lane's."""
        return self._lane.owns(key)

    def cause(self) -> int:
        """Which of the epoch's records is in hand."""
        return self._lane.cursor.row

    def on_close(self, close: Callable[[], None]) -> None:
        """When the lane closes."""
        self._lane.on_close(close)

    def request_commit(self) -> None:
        """A wish for an early end of the epoch."""
        self._lane.commit_requested = True

    def register(self, name: str, initial: int) -> Register:
        """An integer of the lane's state."""
        return self._lane.register(name, initial)

    def clock(self, name: str) -> Clock:
        """A stream clock of the lane."""
        return self._lane.clock(name, self.has_watermarks)

    def schedule(
        self, interval_ms: int, kind: PunctuationType, punctuate: Callable[[int], None], start_ms: int | None = None
    ) -> Callable[[], None]:
        """Have `punctuate` called at every interval, from `start_ms` if it is given."""
        if interval_ms < 1:
            raise ValueError(f"{self.node}: the interval of a punctuator must be at least 1 ms")
        lane = self._lane
        by_stream_time = PunctuationType(kind) is PunctuationType.STREAM_TIME
        stream_time = lane.stream_time_of(self.node)
        now = stream_time.value if by_stream_time else lane.wall_clock()
        if start_ms is not None:
            due = start_ms
        else:
            due = 0 if by_stream_time else now + interval_ms

        self._schedules += 1
        register = lane.register(f"{self.node}/punctuator {self._schedules}", due)
        is_new = register.value == due
        place = lane.register(f"{self.node}/punctuator {self._schedules}/place", 0)
        schedule = Schedule(register, place, interval_ms, lambda time: self._between_records(punctuate, time))
        if is_new and start_ms is not None and start_ms < now != NO_TIMESTAMP:
            schedule.advance(now)
        (stream_time.punctuators if by_stream_time else lane.wall_clock_punctuators).add(schedule)
        return schedule.cancel

    def metadata(self) -> RecordMetadata | None:
        """Where the record in hand came from."""
        return self._lane.metadata

    def at(self, origin: RecordMetadata | None) -> AbstractContextManager[None]:
        """While a record that was held back goes on."""
        return self._lane.at(origin)

    def stream_time(self) -> int:
        """The stream time of the node's sub-topology."""
        return self._lane.stream_time_of(self.node).value

    def event_time(self) -> int:
        """The clock of event-time timers."""
        return self._lane.attached.floor if self.has_watermarks else self.stream_time()

    def wall_clock(self) -> int:
        """The host's clock."""
        return self._lane.wall_clock()

    def _between_records(self, happen: Callable[[int], None], time: int) -> None:
        """What runs between records fails in the node's name too."""
        try:
            happen(time)
        except ATTRIBUTED:
            raise
        except Exception as error:
            self._lane.failures.processing(self._lane, self._node, error, None)


def _or_never(time: int | None) -> int:
    return NEVER if time is None else time
