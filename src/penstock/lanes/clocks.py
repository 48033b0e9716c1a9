"""Time in one shard of a lane: its clocks, and the punctuators and timers that go by them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.lanes.blueprint import Blueprint
from penstock.lanes.cursor import Cursor
from penstock.lanes.position import NOWHERE
from penstock.lanes.punctuation import Punctuators
from penstock.lanes.stores import Stores
from penstock.lanes.stream_time import StreamTime
from penstock.lanes.timers import LaneTimers
from penstock.lanes.watermark import LaneWatermark, WatermarkClock
from penstock.processor import Clock, TimerKind
from penstock.records import NO_TIMESTAMP
from penstock.state import Register
from penstock.timing import MAX_MS
from penstock.topology.nodes import ProcessorNode


class Clocks:
    """The wall clock, the watermark and the stream times of a shard, each with what follows it.

    `latest` is the highest event time of the epoch at hand, where nobody follows stream time.
    """

    __slots__ = (
        "_blueprint",
        "_clocks",
        "_cursor",
        "_stores",
        "_stream_times",
        "latest",
        "timers",
        "wall_clock",
        "wall_clock_punctuators",
        "watermark",
    )

    def __init__(
        self, blueprint: Blueprint, stores: Stores, cursor: Cursor, wall_clock: Callable[[], int], watermark: int | None
    ) -> None:
        self._blueprint = blueprint
        self._stores = stores
        self._cursor = cursor
        self._clocks: dict[str, Clock] = {}
        self._stream_times: dict[str, StreamTime] = {}
        self.latest: int = NO_TIMESTAMP
        self.wall_clock: Callable[[], int] = wall_clock
        self.wall_clock_punctuators: Punctuators = Punctuators()
        self.timers: LaneTimers = LaneTimers()
        self.watermark: LaneWatermark = LaneWatermark(watermark, self._limit_retention(watermark), cursor)
        self._follow_expiring()

    def _limit_retention(self, watermark: int | None) -> list[Register]:
        """Where windows are kept by watermarks, let that be this one; elsewhere by what stores are given."""
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
        """Let entries expire by the stream time of the nodes that use them."""
        for node in self._blueprint.nodes:
            if isinstance(node, ProcessorNode) and (names := self._blueprint.expiring_stores(node)):
                expiring = [self._stores.store(name) for name in names]
                known = self.stream_time_of(node.name).expiring
                known += [store for store in expiring if store not in known]

    # ---- what time it is ------------------------------------------------------------------------------------------

    def stream_time_of(self, node: str) -> StreamTime:
        """The stream time of the sub-topology that a node belongs to."""
        name = self._blueprint.sub_topology_of(node)
        found = self._stream_times.get(name)
        if found is None:
            register = self._stores.register(f"stream time {name}".rstrip(), NO_TIMESTAMP)
            found = self._stream_times[name] = StreamTime(register)
        return found

    @property
    def follow_stream_time(self) -> bool:
        """Whether stream time has to be right at every record."""
        return self._blueprint.follows_stream_time

    def time_of(self, node: str) -> int:
        """How far event time has come at a node, for what no single record stands for."""
        return self.stream_time_of(node).value if self.follow_stream_time else self.latest

    def has_watermarks(self, node: str) -> bool:
        """Whether a source above a node tells watermarks."""
        return node in self._blueprint.watermarked

    def clock(self, name: str, is_watermarked: bool = False) -> Clock:
        """A named clock: of watermarks, or of stream time, which is kept in the shard's registers."""
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
        """When something of this lane waits for the wall clock next; None if nothing does."""
        times = (self.wall_clock_punctuators.next_due, self.timers.earliest(TimerKind.PROCESSING_TIME))
        return min((time for time in times if time is not None), default=None)

    @property
    def have_timers(self) -> bool:
        """Whether a node may set timers."""
        return bool(self.timers.queues)

    def restore_punctuators(self) -> None:
        """Have all punctuators stand as they stood when the last epoch ended."""
        for punctuators in (self.wall_clock_punctuators, *(time.punctuators for time in self._stream_times.values())):
            punctuators.restore_places()

    def punctuate(self, stream_time: StreamTime) -> None:
        """Call what has become due by a stream time."""
        if stream_time.punctuators:
            self._cursor.position = NOWHERE
            stream_time.fire_punctuators()
        if stream_time.fire_timers():
            self._cursor.position = NOWHERE

    def fire_punctuators(self) -> None:
        """Call wall-clock punctuators that have become due."""
        self._cursor.position = NOWHERE
        self.wall_clock_punctuators.fire(self.wall_clock())

    def fire_timers(self) -> bool:
        """Fire what is due before the next records: timers of the wall clock, then those of event time.

        Tells whether some of the wall clock's were held back until the next epoch.
        """
        is_held = self.timers.fire(TimerKind.PROCESSING_TIME, self.wall_clock()) if self.timers.queues else False
        for stream_time in self._stream_times.values():
            stream_time.fire_timers()
        self._cursor.position = NOWHERE
        return is_held


class ObservedClock:
    """Stream time as the highest timestamp that came by in this shard, kept in a register: as a task of Kafka Streams has it."""

    __slots__ = ("_register",)

    def __init__(self, register: Register) -> None:
        self._register = register

    @property
    def time(self) -> int:
        """The highest timestamp so far."""
        return self._register.value

    def observe(self, timestamp: int) -> int:
        """Note a timestamp."""
        register = self._register
        if timestamp > register.value:
            register.value = timestamp
            return timestamp
        return register.value
