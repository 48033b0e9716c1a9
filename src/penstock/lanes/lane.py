"""A lane's work in one shard: the operators of a topology (or of one stage of it) bound to the shard's stores.

It knows neither Spark nor Kafka nor threads. It is built from frozen nodes and a shard's state, fed with an epoch's records in
bulk, and drained of rows; the test driver and a Spark task host the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.calls import Call, Callers, Request
from penstock.errors import TopologyError
from penstock.lanes.asking import Asking, make_calls
from penstock.lanes.entrances import Entrances
from penstock.lanes.failures import Failures
from penstock.lanes.host import NodeHost
from penstock.lanes.outbox import Row
from penstock.lanes.position import NOWHERE, At, Position, Rows
from penstock.lanes.punctuation import NEVER, Punctuators
from penstock.lanes.sampling import Samples
from penstock.lanes.sinks import bind_sink
from penstock.lanes.sources import Intake
from penstock.lanes.stream_time import StreamTime
from penstock.lanes.timers import LaneTimers
from penstock.lanes.tracing import Traces
from penstock.processor import Clock, TableOperator, TimerKind, View
from penstock.records import NO_TIMESTAMP, Headers, Process, RecordMetadata
from penstock.state import CachedKeyValueStore, Register, ShardState, StateOfStores, StoreSpec, retention_limit
from penstock.timing import MAX_MS
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

BEFORE_RECORDS = -2
"""What causes rows that are sent before an epoch's first record: the wall clock, or a watermark."""


class Lane:
    """A running instance of some nodes of a topology, for one shard: what Kafka Streams calls a task.

    `partitions` tells a partitioner how many partitions a topic has; `wall_clock` is the host's clock in milliseconds. A lane
    of one stage is also given the topology's other nodes as `tables`, for joins that read what another stage writes.
    `watermark` is the application's as of the last barrier, None if it has none; `watermarked` are the nodes below sources that
    tell one, for which it is the time. `owns` tells whether a key is this shard's. `callers` gives what makes calls to other
    systems; it is asked only if a node makes some. `committed_owner` gives the state, as of the last barrier, of the shard that
    owns a key; it is asked only for keys that are not this shard's. `samples`, where given, has every node watched, and
    `traces` has it noted which traced records lead to what. `sub_topologies` tells which nodes have a stream time together;
    without it all have, as in Kafka Streams' test driver.
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
        global_state: StateOfStores | None = None,
        failures: Failures | None = None,
        watermark: int | None = None,
        watermarked: Collection[str] = (),
        owns: Callable[[bytes], bool] = lambda key: True,
        callers: Callable[[], Callers] = Callers,
        committed_owner: Callable[[bytes], ShardState] | None = None,
        samples: Samples | None = None,
        traces: Traces | None = None,
        sub_topologies: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.failures: Failures = failures or Failures()
        self.watermarked = watermarked
        self.owns = owns
        self._committed_owner = committed_owner
        self._callers = callers
        self.asking_nodes: list[Asking] = []  # the last node first
        self._tables = tables
        self._global_stores = global_stores
        self._global_state = global_state or state
        self.wall_clock = wall_clock
        self.position: Position = NOWHERE
        self.cursor: Rows = Rows((), ())  # counts along an epoch's records; -1 when they are done
        self.cursor.row = BEFORE_RECORDS
        self.attached: Attached = Attached(watermark)
        self.wall_clock_punctuators: Punctuators = Punctuators()
        self.timers: LaneTimers = LaneTimers()
        self.dropped: dict[tuple[str, str], int] = {}
        self.commit_requested = False  # a processor's wish, which the host tells the driver
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
        self.entrances: Entrances = Entrances(self)
        self.bound: dict[str, Process] = {}  # children before parents
        self.children: dict[str, list[str]] = {node.name: [] for node in nodes}
        for name in _stores_in_order(nodes):
            self._state.store(specs[name])
            self._flushes[name] = _nothing_to_flush
        self._retaining = self._limit_retention(watermark)
        self._sub_topologies = sub_topologies
        self._stream_times: dict[str, StreamTime] = {}
        self.latest = NO_TIMESTAMP  # the highest event time of the epoch at hand, where nobody follows stream time
        self.follows_stream_time: bool = self._has_followers(nodes)
        self._bind(nodes, partitions, samples, traces)

    def _has_followers(self, nodes: Sequence[Node]) -> bool:
        """Whether somebody can tell the stream time at any record: a processor, or a store in which entries expire.

        Another stage of the same sub-topology may have them: the stream time is that of both.
        """
        for node in nodes:
            if isinstance(node, ProcessorNode):
                expiring = [self.store(store) for store in node.stores if self._specs[store].ttl_ms is not None]
                if expiring:
                    known = self.stream_time_of(node.name).expiring
                    known += [store for store in expiring if store not in known]
        groups = {self._sub_topologies.get(node.name) for node in nodes}
        return any(
            isinstance(node, ProcessorNode)
            and self._sub_topologies.get(node.name) in groups
            and (node.operator.runs_user_objects or any(self._specs[store].ttl_ms is not None for store in node.stores))
            for node in self.topology.values()
        )

    def stream_time_of(self, node: str) -> StreamTime:
        """The stream time of the sub-topology that a node belongs to."""
        name = self._sub_topologies.get(node, "")
        found = self._stream_times.get(name)
        if found is None:
            register = self._state.registers.register(f"stream time {name}".rstrip(), NO_TIMESTAMP)
            found = self._stream_times[name] = StreamTime(register)
        return found

    def time_of(self, node: str) -> int:
        """How far event time has come at a node, for what no single record stands for."""
        return self.stream_time_of(node).value if self.follows_stream_time else self.latest

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
                bound[node.name] = bind_sink(node, self, self._rows.append, partitions)
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
        for punctuators in (self.wall_clock_punctuators, *(time.punctuators for time in self._stream_times.values())):
            punctuators.restore_places()

    @property
    def topology(self) -> Mapping[str, Node]:
        """All nodes that are known, those of other stages included."""
        return {**self._tables, **self._nodes}

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

    def store(self, name: str) -> Any:
        """A typed store of this shard, or a global one."""
        return (self._global_state if name in self._global_stores else self._state).store(self.spec(name))

    def spec(self, name: str) -> StoreSpec:
        """What the store was declared as."""
        try:
            return self._specs[name]
        except KeyError:
            raise TopologyError(f"there is no store {name!r}; the topology has {', '.join(self._specs) or 'none'}") from None

    def committed_owner(self, key: bytes) -> ShardState:
        """The shard that owns a key of another shard's, as of the last barrier."""
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
        """A named clock: of watermarks, or of stream time, which is kept in the shard's registers."""
        clock = self._clocks.get(name)
        if clock is None:
            clock = WatermarkClock(self.attached) if is_watermarked else self._observed_clock(name)
            self._clocks[name] = clock
        return clock

    def _observed_clock(self, name: str) -> Clock:
        return ObservedClock(self._state.registers.register(f"clock {name}", NO_TIMESTAMP))

    def register(self, name: str, initial: int) -> Register:
        """A named integer of the shard's state."""
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
        self.asking_nodes.append(asking)
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
        self._rows.append(row._replace(cause=self.cursor.row))

    def punctuate(self, stream_time: StreamTime) -> None:
        """Call what has become due by a stream time."""
        if stream_time.punctuators:
            self.position = NOWHERE
            stream_time.fire_punctuators()
        if stream_time.fire_timers():
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
        for stream_time in self._stream_times.values():
            stream_time.fire_timers()
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
        """Have calls made and let cached tables emit; see `flush`."""
        flush([self])

    def let_tables_emit(self) -> None:
        """Have every cached table hand on what it holds."""
        for emit in self._flushes.values():
            emit()

    @property
    def is_holding_back(self) -> bool:
        """Whether calls wait to be made, or tables to emit."""
        if any(asking.is_waiting for asking in self.asking_nodes) or any(self._pending.values()):
            return True
        return any(cache.held for cache in self._caches())

    def _caches(self) -> list[CachedKeyValueStore[Any, Any]]:
        stores = [self.store(name) for name, flush in self._flushes.items() if flush is not _nothing_to_flush]
        return [store for store in stores if isinstance(store, CachedKeyValueStore)]

    def drain(self) -> list[Row]:
        """Take out the rows sent since the last call."""
        rows = self._rows.copy()
        self._rows.clear()
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
    """The watermark before the record in hand, which it brought along from its source; -1 if it brought none.

    It is that of the partition it came from, or the highest event time where the source has no watermarks but others have.
    `floor` is the application's watermark.
    """

    __slots__ = ("floor", "time")

    def __init__(self, watermark: int | None) -> None:
        self.time: int = NO_TIMESTAMP
        self.floor: int = NO_TIMESTAMP if watermark is None else watermark


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

    def observe(self, timestamp: int) -> int:
        """The time, which no record's timestamp moves."""
        attached = self._attached
        return max(attached.floor, attached.time)


def flush(lanes: Sequence[Lane]) -> None:
    """Have calls made and let cached tables emit: what the end of an epoch does before the commit.

    The lanes are those of several shards, bound to the same nodes: a node's calls are made for all of them at once. A processor
    below one table may write into another that has been asked already, and a table may lead to calls; then all are asked again.
    """
    while True:
        for same_node in reversed(list(zip(*(lane.asking_nodes for lane in lanes), strict=True))):
            make_calls(same_node)
        for lane in lanes:
            lane.let_tables_emit()
        if not any(lane.is_holding_back for lane in lanes):
            return


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
