"""A lane: the operators of a topology (or of one stage of it) bound to their stores, walked record by record.

A lane knows neither Spark nor Kafka nor threads. It is built from frozen nodes and a `LaneState`, fed with an epoch's
records in bulk, and drained of rows; the test driver and a Spark task host the same lane.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.calls import Call, Callers, Request
from penstock.errors import TopologyError
from penstock.lanes.asking import Asking
from penstock.lanes.entrances import Entrances
from penstock.lanes.failures import Failures
from penstock.lanes.host import NodeHost
from penstock.lanes.outbox import Row
from penstock.lanes.position import NOWHERE, At, Position, Rows
from penstock.lanes.punctuation import NEVER, Punctuators
from penstock.lanes.sampling import Samples
from penstock.lanes.sinks import bind_sink
from penstock.lanes.sources import Intake
from penstock.lanes.timers import LaneTimers
from penstock.lanes.tracing import Traces
from penstock.processor import Clock, TableOperator, TimerKind, View
from penstock.records import NO_TIMESTAMP, Headers, Process, RecordMetadata
from penstock.state import CachedKeyValueStore, LaneState, Register, StateOfStores, StoreSpec, retention_limit
from penstock.timing import MAX_MS
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

BEFORE_RECORDS = -2
"""What causes rows that are sent before an epoch's first record: the wall clock, or a watermark."""


class Lane:
    """A running instance of some nodes of a topology.

    `partitions` tells a partitioner how many partitions a topic has; `wall_clock` is the host's clock in milliseconds. A lane
    of one stage is also given the topology's other nodes as `tables`, for joins that read what another stage writes.
    `watermark` is the application's as of the last barrier, None if it has none; `watermarked` are the nodes below sources that
    tell one, for which it is the time. `owns` tells whether a key is this lane's. `callers` gives what makes calls to other
    systems; it is asked only if a node makes some. `committed_owner` gives the state, as of the last barrier, of the lane that
    owns a key; it is asked only for keys that are not this lane's. `samples`, where given, has every node watched, and
    `traces` has it noted which traced records lead to what.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        specs: Mapping[str, StoreSpec],
        state: StateOfStores,
        wall_clock: Callable[[], int],
        partitions: Callable[[str], int] = lambda topic: 1,
        global_stores: Collection[str] = (),
        tables: Mapping[str, Node] = MappingProxyType({}),
        global_state: LaneState | None = None,
        failures: Failures | None = None,
        watermark: int | None = None,
        watermarked: Collection[str] = (),
        owns: Callable[[bytes], bool] = lambda key: True,
        callers: Callable[[], Callers] = Callers,
        committed_owner: Callable[[bytes], LaneState] | None = None,
        samples: Samples | None = None,
        traces: Traces | None = None,
    ) -> None:
        self.failures = failures or Failures()
        self.watermarked = watermarked
        self.owns = owns
        self._committed_owner = committed_owner
        self._callers = callers
        self._asking: list[Asking] = []
        self._tables = tables
        self._global_stores = global_stores
        self._global_state = global_state or state
        self.wall_clock = wall_clock
        self._stream_time = state.registers.register("stream time", NO_TIMESTAMP)
        self.position: Position = NOWHERE
        self.cursor = Rows((), ())  # counts along an epoch's records; -1 when they are done
        self.cursor.row = BEFORE_RECORDS
        self.causes: list[int] = []  # which of the epoch's records each row to an exchange follows from
        self.attached = Attached(watermark)
        self.stream_time_punctuators = Punctuators()
        self.wall_clock_punctuators = Punctuators()
        self.timers = LaneTimers()
        self.stream_timers = LaneTimers()  # of nodes whose event time is stream time, and not the application's watermark
        self.dropped: dict[tuple[str, str], int] = {}
        self.commit_requested = False  # a processor's wish; the host that cuts epochs reads it
        self.has_processors = any(isinstance(node, ProcessorNode) and node.operator.runs_user_objects for node in nodes)
        self._rows: list[Row] = []
        self._state = state
        self._specs = specs
        self._nodes = {node.name: node for node in nodes}
        self._hosts: dict[str, NodeHost] = {}
        self._views: dict[str, View] = {}
        self._clocks: dict[str, Clock] = {}
        self._flushes: dict[str, Callable[[], None]] = {}
        self._pending: dict[str, dict[Any, Any]] = {}
        self._waiting: list[Waiting] = []
        self._starters: list[Callable[[], None]] = []
        self._closers: list[Callable[[], None]] = []
        self.intakes: dict[str, Intake] = {}
        self.entrances = Entrances(self)
        self.bound: dict[str, Process] = {}  # children before parents
        self.children: dict[str, list[str]] = {node.name: [] for node in nodes}
        for name in _stores_in_order(nodes):
            self._state.store(specs[name])
            self._flushes[name] = _nothing_to_flush
        self._retaining = self._limit_retention(watermark)
        self._expiring = [self.store(name) for name in self._flushes if specs[name].ttl_ms is not None]
        self._bind(nodes, partitions, samples, traces)

    def _limit_retention(self, watermark: int | None) -> list[Register]:
        """Where windows are kept by watermarks, let that be this one; elsewhere by what stores are given."""
        followed = {store for name in self.watermarked for store in getattr(self._nodes.get(name), "stores", ())}
        limits = []
        for store in self._flushes:
            if self._specs[store].retention_ms is not None:
                limit = retention_limit(self._state.registers, store)
                limit.value = MAX_MS if watermark is None or store not in followed else watermark
                if store in followed:
                    limits.append(limit)
        return limits

    def _bind(
        self, nodes: Sequence[Node], partitions: Callable[[str], int], samples: Samples | None, traces: Traces | None
    ) -> None:
        """Bind children before parents, so that each node closes over what it forwards to; then start, parents first."""
        children = self.children
        for node in nodes:
            self._hosts[node.name] = NodeHost(self, node)
            for parent in node.parents:
                if parent in children:  # a parent may belong to another stage
                    children[parent].append(node.name)
        bound = self.bound
        for node in reversed(nodes):
            below = {name: bound[name] for name in children[node.name]}
            forward = fan_out(list(below.values()))
            if isinstance(node, SinkNode):
                send = self._send_to_exchange if node.internal else self._rows.append
                bound[node.name] = bind_sink(node, self, send, partitions)
            elif isinstance(node, ProcessorNode):
                host = self._hosts[node.name]
                host.children = below
                if node.side_outputs or node.shared:
                    host.side_outputs = {output: below[child] for output, child in node.side_outputs}
                    host.shared_writes = {store: below.pop(sink) for store, sink in node.shared if sink is not None}
                    aside = {child for _, child in node.side_outputs}
                    forward = fan_out([process for name, process in below.items() if name not in aside])
                if traces is not None:
                    forward = traces.linking(node, forward)
                bound[node.name] = self.failures.persistent(self, node).bind(host, forward)
                if traces is not None:
                    bound[node.name] = traces.noting(node, bound[node.name])
            else:
                bound[node.name] = forward
            if samples is not None:
                bound[node.name] = samples.watched(node.name, bound[node.name])
            if isinstance(node, SourceNode):
                self.intakes[node.name] = Intake(node, bound[node.name])
        for start in reversed(self._starters):
            start()

    @property
    def topology(self) -> Mapping[str, Node]:
        """All nodes that are known, those of other stages included."""
        return {**self._tables, **self._nodes}

    @property
    def stream_time(self) -> int:
        """The highest event time the lane has seen, -1 before the first; part of its state."""
        return self._stream_time.value

    @stream_time.setter
    def stream_time(self, time: int) -> None:
        self._stream_time.value = time

    def reach(self, time: int) -> None:
        """Let stream time come as far, and with it what expires."""
        self._stream_time.value = max(self._stream_time.value, time)
        for store in self._expiring:
            store.observe(time)

    @property
    def metadata(self) -> RecordMetadata | None:
        """Where the record in hand came from."""
        return self.position.metadata()

    @contextmanager
    def at(self, origin: RecordMetadata | None) -> Iterator[None]:
        """Be where a record that was held back came from."""
        before = self.position
        self.position = NOWHERE if origin is None else At(origin)
        try:
            yield
        finally:
            self.position = before

    def _send_to_exchange(self, row: Row) -> None:
        self._rows.append(row)
        self.causes.append(self.cursor.row)

    def store(self, name: str) -> Any:
        """A typed store of this lane, or a global one."""
        return (self._global_state if name in self._global_stores else self._state).store(self.spec(name))

    def spec(self, name: str) -> StoreSpec:
        """What the store was declared as."""
        try:
            return self._specs[name]
        except KeyError:
            raise TopologyError(f"there is no store {name!r}; the topology has {', '.join(self._specs) or 'none'}") from None

    def committed_owner(self, key: bytes) -> LaneState:
        """The lane that owns a key of another lane's, as of the last barrier."""
        assert self._committed_owner is not None
        return self._committed_owner(key)

    def is_global(self, name: str) -> bool:
        """Whether every node may use the store without being connected to it."""
        return name in self._global_stores

    def view(self, table: str) -> View:
        """How to read the table a node produces."""
        view = self._views.get(table)
        if view is None:
            node = self._nodes.get(table) or self._tables.get(table)
            operator = self.failures.persistent(self, node) if isinstance(node, ProcessorNode) else None
            if node is None or not isinstance(operator, TableOperator):
                raise TopologyError(f"node {table!r} is not a table")
            view = self._views[table] = operator.view(self._hosts.get(table) or NodeHost(self, node))
        return view

    def clock(self, name: str, is_watermarked: bool = False) -> Clock:
        """A named clock: of watermarks, or of stream time, which is kept in the lane's registers."""
        clock = self._clocks.get(name)
        if clock is None:
            clock = WatermarkClock(self.attached) if is_watermarked else self._observed_clock(name)
            self._clocks[name] = clock
        return clock

    def _observed_clock(self, name: str) -> Clock:
        return ObservedClock(self._state.registers.register(f"clock {name}", NO_TIMESTAMP), self.attached)

    def register(self, name: str, initial: int) -> Register:
        """A named integer of the lane's state."""
        return self._state.registers.register(name, initial)

    def pending(self, store: str) -> dict[Any, Any]:
        """The changes of a cached store that wait for the end of the epoch; nodes that share a store (cogroup) share these."""
        return self._pending.setdefault(store, {})

    def on_flush(self, store: str, flush: Callable[[], None]) -> None:
        """Call `flush` when the epoch ends.

        Of nodes that share a store the last one in the topology emits, as in Kafka Streams. Binding goes from the last node
        to the first, so that is whoever asks first.
        """
        if self._flushes[store] is _nothing_to_flush:
            self._flushes[store] = flush

    def asking(self, node: Node, call: Call, take: Callable[[Request, Any], None]) -> Asking:
        """The calls of a node, which are made when the epoch ends."""
        asking = Asking(self, node, self._callers().of(node.name, call), take)
        self._asking.append(asking)
        return asking

    def wait_for_watermark(self, due: Callable[[], int], reach: Callable[[int], None]) -> None:
        """Let a node hear of the application's watermark. Binding goes from the last node to the first: this one is above."""
        self._waiting.insert(0, Waiting(due, reach))

    def on_start(self, start: Callable[[], None]) -> None:
        """Called once the lane is bound, parents before children."""
        self._starters.append(start)

    def on_close(self, close: Callable[[], None]) -> None:
        """Called when the lane is closed."""
        self._closers.append(close)

    def drop(self, node: str, reason: str) -> None:
        """Count a record that semantics told a node to skip."""
        self.dropped[node, reason] = self.dropped.get((node, reason), 0) + 1

    def send_dead_letter(self, row: Row) -> None:
        """Let a record that failed leave with what is sent."""
        self._rows.append(row)

    def punctuate(self) -> None:
        """Call stream-time punctuators that have become due."""
        if self.stream_time_punctuators and self.stream_time != NO_TIMESTAMP:
            self.position = NOWHERE
            self.stream_time_punctuators.fire(self.stream_time)
        if self.stream_timers.queues:
            self.stream_timers.fire(TimerKind.EVENT_TIME, self.stream_time)
            self.position = NOWHERE

    def advance_watermark(self, watermark: int, settle: Callable[[], None] | None = None) -> None:
        """Let the application's watermark be this. What waits for it happens node by node, parents before children.

        What a node sends on then is not late for those below: they hear of the watermark after it. Caches hold nothing back
        meanwhile; `settle` is what the host does for that, if it does more.
        """
        settle = settle or self.flush
        self.position = NOWHERE
        if self._waiting:
            settle()  # what earlier stages have sent because of it
        for waiting in self._waiting:
            if waiting.due() <= watermark:
                self.position = NOWHERE
                waiting.reach(watermark)
                settle()
        self.attached.floor = watermark
        for limit in self._retaining:
            limit.value = watermark

    @property
    def has_timers(self) -> bool:
        """Whether a node may set timers."""
        return bool(self.timers.queues)

    def fire_timers(self) -> bool:
        """Fire what is due before the next records: timers of the wall clock, then those of event time.

        Tells whether some of the wall clock's were held back until the next epoch.
        """
        is_held = self.timers.fire(TimerKind.PROCESSING_TIME, self.wall_clock()) if self.timers.queues else False
        if self.stream_timers.queues:
            self.stream_timers.fire(TimerKind.EVENT_TIME, self.stream_time)
        self.position = NOWHERE
        return is_held

    @property
    def due(self) -> int | None:
        """When something of this lane waits for the wall clock next; None if nothing does."""
        times = (self.wall_clock_punctuators.next_due, self.timers.earliest(TimerKind.PROCESSING_TIME))
        return min((time for time in times if time is not None), default=None)

    @property
    def event_due(self) -> int | None:
        """At which watermark something happens next: a timer, or a window that closes; None if nothing waits for one."""
        return min((due for waiting in self._waiting if (due := waiting.due()) < NEVER), default=None)

    def advance_wall_clock(self) -> None:
        """Call wall-clock punctuators that have become due."""
        self.position = NOWHERE
        self.wall_clock_punctuators.fire(self.wall_clock())

    def flush(self) -> None:
        """Have calls made and let cached tables emit: what the end of an epoch does before the commit.

        A processor below one table may write into another that has been asked already, and a table may lead to calls; then all
        are asked again.
        """
        while True:
            for asking in reversed(self._asking):
                asking.make()
            for flush in self._flushes.values():
                flush()
            is_waiting = any(asking.is_waiting for asking in self._asking)
            if not is_waiting and not any(self._pending.values()) and not any(cache.held for cache in self._caches()):
                return

    def _caches(self) -> list[CachedKeyValueStore[Any, Any]]:
        stores = [self.store(name) for name, flush in self._flushes.items() if flush is not _nothing_to_flush]
        return [store for store in stores if isinstance(store, CachedKeyValueStore)]

    def drain(self) -> list[Row]:
        """Take out the rows sent since the last call."""
        rows = self._rows.copy()
        self._rows.clear()
        self.causes.clear()
        return rows

    def close(self) -> None:
        """Let user processors clean up, parents first; all of them, whichever fails."""
        failures: list[Exception] = []
        for close in reversed(self._closers):
            try:
                close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]


class Waiting(NamedTuple):
    """A node that waits for the application's watermark: for which one, and what it does when one is reached."""

    due: Callable[[], int]
    reach: Callable[[int], None]


class Attached:
    """The time before the record in hand, which it brought along from its source; -1 if it brought none.

    It is the watermark of the partition it came from, or the highest event time where the source has none. `floor` is the
    application's watermark.
    """

    __slots__ = ("floor", "time")

    def __init__(self, watermark: int | None) -> None:
        self.time = NO_TIMESTAMP
        self.floor = NO_TIMESTAMP if watermark is None else watermark


class ObservedClock:
    """Stream time as the highest timestamp that came by, kept in a register.

    A record that brings its partition's time along is judged by that, not by what other partitions have shown: how input
    is spread over lanes then makes no difference.
    """

    __slots__ = ("_attached", "_register")

    def __init__(self, register: Register, attached: Attached) -> None:
        self._register = register
        self._attached = attached

    @property
    def time(self) -> int:
        """The highest timestamp so far."""
        return self._register.value

    @property
    def reached(self) -> int:
        """The time that was reached before the record in hand, here or in other lanes; -1 if that is the clock's own time."""
        return self._attached.time

    def observe(self, timestamp: int) -> int:
        """Note a timestamp."""
        register, attached = self._register, self._attached.time
        time = max(attached, timestamp)
        if time > register.value:
            register.value = time
            return time
        return register.value if attached == NO_TIMESTAMP else time


class WatermarkClock:
    """Time as watermarks tell it, where they do: that of the partition before the record in hand, and at least that of all."""

    __slots__ = ("_attached",)

    def __init__(self, attached: Attached) -> None:
        self._attached = attached

    @property
    def time(self) -> int:
        """What is late is before this."""
        attached = self._attached
        return max(attached.floor, attached.time)

    @property
    def reached(self) -> int:
        """The same: a record does not move it for itself."""
        return self.time

    def observe(self, timestamp: int) -> int:
        """The time, which no record's timestamp moves."""
        attached = self._attached
        return max(attached.floor, attached.time)


def fan_out(children: Sequence[Process]) -> Process:
    """One function that hands a record to all children, in order."""
    if len(children) == 1:
        return children[0]
    if not children:
        return _nowhere
    if len(children) == 2:
        first, second = children

        def both(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            first(key, value, timestamp, headers)
            second(key, value, timestamp, headers)

        return both

    def each(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for child in children:
            child(key, value, timestamp, headers)

    return each


def _nothing_to_flush() -> None:
    """What an uncached store does at the end of an epoch."""


def _nowhere(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """Where records go below the last node."""


def _stores_in_order(nodes: Iterable[Node]) -> list[str]:
    """Stores by their first user: the order in which caches are flushed."""
    names: dict[str, None] = {}
    for node in nodes:
        if isinstance(node, ProcessorNode):
            names.update(dict.fromkeys(node.stores))
    return list(names)
