"""Time in one shard of a lane: its clocks, and the punctuators and timers that follow them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.hosted import TimerKind
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.cursor import Cursor
from penstock.lanes.position import NOWHERE
from penstock.lanes.punctuation import Punctuators
from penstock.lanes.stores import Stores
from penstock.lanes.stream_time import StreamTime
from penstock.lanes.timers import LaneTimers
from penstock.lanes.watermark import LaneWatermark, WatermarkClock
from penstock.processor import Clock
from penstock.records import NO_TIMESTAMP
from penstock.state import Register
from penstock.timing import MAX_MS
from penstock.topology.nodes import ProcessorNode


class Clocks:
    """The wall clock, the watermark and the stream times of a shard, with the punctuators, timers and stores that follow them.

    `latest` is the highest event time of the current epoch, used if no node follows stream time; `cancelled_as` stands for the
    next time of a punctuator that was cancelled in this start.
    """

    __slots__ = (
        "_blueprint",
        "_clocks",
        "_cursor",
        "_stores",
        "_stream_times",
        "cancelled_as",
        "latest",
        "timers",
        "wall_clock",
        "wall_clock_punctuators",
        "watermark",
    )

    def __init__(
        self,
        blueprint: Blueprint,
        stores: Stores,
        cursor: Cursor,
        wall_clock: Callable[[], int],
        watermark: int | None,
        start: int = 0,
    ) -> None:
        self._blueprint = blueprint
        self._stores = stores
        self._cursor = cursor
        self._clocks: dict[str, Clock] = {}
        self._stream_times: dict[str, StreamTime] = {}
        self.cancelled_as: int = NO_TIMESTAMP - 1 - start
        self.latest: int = NO_TIMESTAMP
        self.wall_clock: Callable[[], int] = wall_clock
        self.wall_clock_punctuators: Punctuators = Punctuators()
        self.timers: LaneTimers = LaneTimers()
        self.watermark: LaneWatermark = LaneWatermark(watermark, self._limit_retention(watermark), cursor)
        self._follow_expiring()

    def _limit_retention(self, watermark: int | None) -> list[Register]:
        """Set how long stores keep windows: by the watermark in watermarked stores, otherwise by the records they receive."""
        followed = self._blueprint.watermarked_stores
        limits = []
        for store in self._blueprint.stores:
            if self._blueprint.specs[store].retention_ms is not None:
                limit = self._stores.retention_limit(store)
                limit.value = MAX_MS if watermark is None or store not in followed else watermark
                if store in followed:
                    limits.append(limit)
        return limits

    def _follow_expiring(self) -> None:
        """Let entries of a store expire by the stream time of the nodes that use it."""
        for node in self._blueprint.nodes:
            if isinstance(node, ProcessorNode) and (names := self._blueprint.expiring_stores(node)):
                expiring = [self._stores.store(name) for name in names]
                known = self.stream_time_of(node.name).expiring
                known += [store for store in expiring if store not in known]

    # ---- the time -------------------------------------------------------------------------------------------------

    def stream_time_of(self, node: str) -> StreamTime:
        """Return the stream time of the sub-topology that a node belongs to."""
        name = self._blueprint.sub_topology_of(node)
        found = self._stream_times.get(name)
        if found is None:
            register = self._stores.register(f"stream time {name}".rstrip(), NO_TIMESTAMP)
            found = self._stream_times[name] = StreamTime(register)
        return found

    @property
    def follow_stream_time(self) -> bool:
        """Whether stream time must be exact at every record."""
        return self._blueprint.follows_stream_time

    def time_of(self, node: str) -> int:
        """Return the event time that a node has reached, for failures that no single record caused."""
        return self.stream_time_of(node).value if self.follow_stream_time else self.latest

    def has_watermarks(self, node: str) -> bool:
        """Whether a source above a node declares a watermark."""
        return node in self._blueprint.watermarked

    def clock(self, name: str, is_watermarked: bool = False) -> Clock:
        """Return a named clock, of watermarks or of stream time, which is kept in the shard's registers."""
        clock = self._clocks.get(name)
        if clock is None:
            clock = WatermarkClock(self.watermark) if is_watermarked else self._observed_clock(name)
            self._clocks[name] = clock
        return clock

    def _observed_clock(self, name: str) -> Clock:
        return ObservedClock(self._stores.register(f"clock {name}", NO_TIMESTAMP))

    # ---- what is due ----------------------------------------------------------------------------------------------

    @property
    def due(self) -> int | None:
        """When the next wall-clock punctuator or timer is due; None if there is none."""
        times = (self.wall_clock_punctuators.next_due, self.timers.earliest(TimerKind.PROCESSING_TIME))
        return min((time for time in times if time is not None), default=None)

    @property
    def have_timers(self) -> bool:
        """Whether a node may set timers."""
        return bool(self.timers.queues)

    def restore_punctuators(self) -> None:
        """Restore the order of all punctuators as it was when the last epoch ended."""
        for punctuators in (self.wall_clock_punctuators, *(time.punctuators for time in self._stream_times.values())):
            punctuators.restore_places()

    def punctuate(self, stream_time: StreamTime) -> None:
        """Call the punctuators and timers that are due by a stream time."""
        if stream_time.punctuators:
            self._cursor.position = NOWHERE
            stream_time.fire_punctuators()
        if stream_time.fire_timers():
            self._cursor.position = NOWHERE

    def fire_punctuators(self) -> None:
        """Call the wall-clock punctuators that are due."""
        self._cursor.position = NOWHERE
        self.wall_clock_punctuators.fire(self.wall_clock())

    def fire_timers(self) -> bool:
        """Fire the timers that are due before the next records: those of the wall clock, then those of event time.

        Return whether some wall-clock timers were held back until the next epoch.
        """
        is_held = self.timers.fire(TimerKind.PROCESSING_TIME, self.wall_clock()) if self.timers.queues else False
        for stream_time in self._stream_times.values():
            stream_time.fire_timers()
        self._cursor.position = NOWHERE
        return is_held


class ObservedClock:
    """Stream time as in a task of Kafka Streams: the highest timestamp in this shard so far, kept in a register."""

    __slots__ = ("_register",)

    def __init__(self, register: Register) -> None:
        self._register = register

    @property
    def time(self) -> int:
        """The highest timestamp so far."""
        return self._register.value

    def observe(self, timestamp: int) -> int:
        """Advance the clock to a timestamp if that is later; return the time."""
        register = self._register
        if timestamp > register.value:
            register.value = timestamp
            return timestamp
        return register.value
