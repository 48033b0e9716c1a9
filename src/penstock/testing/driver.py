"""`TopologyTestDriver`: runs a topology in this process, with a clock that the test moves.

It hosts a lane with all stages for each shard. Each record is an epoch. Records for an exchange, or for a topic that the topology
reads, are processed before the next input record, as in Kafka Streams' own driver.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.calls import Callers, LoopThread
from penstock.errors import TopologyError
from penstock.handlers import HandlerKeywords, handlers_of
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings, flush
from penstock.lanes.failures import FailurePolicy
from penstock.lanes.outbox import Row
from penstock.lanes.position import At, RawRecord
from penstock.lanes.residents import Residents
from penstock.lanes.sources import Arrival, Intake
from penstock.metrics import UserMetrics
from penstock.records import NO_TIMESTAMP, Headers, RecordMetadata
from penstock.serdes import Bytes, Serde
from penstock.serdes.registry.memory import MemorySource
from penstock.serdes.registry.registry import Registry
from penstock.state import LaneState, memory_engine
from penstock.testing.display import Displayed
from penstock.testing.fakes import checked_fakes
from penstock.testing.queues import Head, TopicQueues, first_of, sections
from penstock.testing.rebinding import Rebinding
from penstock.testing.shards import close_all, dropped_by, residents_of, sent_by, shards_of
from penstock.testing.topics import InputTopic, OutputTopic, of_topic, serde_given
from penstock.testing.virtual_time import VirtualTimeLoop
from penstock.testing.watermarks import TopicWatermarks
from penstock.timing import Duration, Instant, duration_ms, instant_ms
from penstock.topology import SinkNode, SourceNode, Topology, checked_topology, watermarked_nodes
from penstock.topology.bindings import bound_nodes, bound_specs

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

K = TypeVar("K")
V = TypeVar("V")

APPLICATION_ID = "topology-test-driver"
"""The application id in dead letters."""


class TopologyTestDriver(Displayed):
    """Runs a topology without a broker, a JVM or Spark.

    `wall_clock` is the start of the wall clock (default: now); only `advance_wall_clock` moves it. With `caching=False`,
    every table emits each of its updates. `partitions` is the number of partitions that partitioners see for each topic. `shards`
    divides the keys as an application with so many does: each shard has a stream time and stores of its own. Error handlers are
    given as to `App`; a retry does not wait here. `fakes` maps functions of the topology to their replacements: functions that
    asynchronous verbs call, or their `setup=`. Calls take no time: while a call only waits for time to pass, a virtual clock
    skips ahead. Serdes with a schema registry use one in memory, `schema_registry`.

    Processors begin anew after some records, as they may at any time in an application; the attribute `seed`, of a driver or of
    the class, decides after which. One that has changed an attribute raises an error, because the attribute would be lost. With
    None as seed, processors live as long as the driver.

    Example:
        >>> from penstock import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", value=str).map_values(str.upper).to("out", value=str)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").pipe("hello", key="a")
        ...     driver.output("out").table()
        {'a': 'HELLO'}
    """

    seed: int | None = 0

    def __init__(
        self,
        topology: Topology,
        *,
        wall_clock: Instant | None = None,
        caching: bool = True,
        partitions: int = 1,
        shards: int = 1,
        fakes: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType({}),
        **handlers: Unpack[HandlerKeywords],
    ) -> None:
        self._topology = checked_topology(topology, "TopologyTestDriver")
        self._loop = LoopThread(lambda thread: VirtualTimeLoop(lambda: self._now, thread))
        self._callers = Callers(self._loop, checked_fakes(fakes, topology))
        self._handlers = handlers_of("TopologyTestDriver", handlers)
        self._now = int(time.time() * 1000) if wall_clock is None else instant_ms(wall_clock)
        self._epoch = 0
        self._policy = FailurePolicy(self._handlers, APPLICATION_ID, epoch=1, sleep=lambda seconds: None)
        self._sections = {name: TopicQueues(self._decode) for name in sections(topology)}
        self._queues = TopicQueues(self._decode)
        self._outputs: defaultdict[str, deque[Row]] = defaultdict(deque)
        self._produced: set[str] = set()
        self._global_offsets: defaultdict[str, int] = defaultdict(int)
        self.schema_registry: MemorySource = MemorySource()
        """Where the schemas of this test are: `schema_registry.subjects` shows them, `register` adds one."""
        self.metrics: UserMetrics = UserMetrics()
        """The metrics of processors: `driver.metrics["orders_rejected"].value`."""
        self._registry = Registry(self.schema_registry)
        self._nodes = bound_nodes(topology.nodes, self._registry)
        specs = bound_specs(topology.stores, APPLICATION_ID, self._registry)
        self._specs = {name: spec if caching else replace(spec, cached=False) for name, spec in specs.items()}
        self._global_sources, self._partitions = set(topology.global_stores.values()), partitions
        self._watermarks = TopicWatermarks(topology, self._now)
        self._engine = memory_engine()
        self._state = LaneState(self._engine)
        self._shards = shards_of(topology, self._state, self._engine, shards)
        self._rebinding = Rebinding(self.rebind)
        self._bind(NO_TIMESTAMP)

    def rebind(self) -> None:
        """Let all processors begin anew, as after a restart: `close`, then `init` of others. Stores and timers stay."""
        before = self._lanes
        close_all(before)
        self._bind(self._lane.clocks.watermark.floor)
        for lane, earlier in zip(self._lanes, before, strict=True):
            lane.outbox.dropped = earlier.outbox.dropped

    def _bind(self, floor: int) -> None:
        """Bind a lane for each shard to its state."""
        blueprint = Blueprint(
            list(self._nodes.values()),
            self._specs,
            global_stores=self._topology.global_stores,
            watermarked=watermarked_nodes(self._topology.nodes),
            sub_topologies=self._sub_topologies(),
        )
        surroundings = Surroundings(lambda: self._now, lambda topic: self._partitions, lambda: self._callers)
        watermark = floor if self._watermarks.are_told else None
        self._lanes = [
            BoundShard(blueprint, own, surroundings, self._policy, watermark, residents=Residents(self.metrics))
            for own in map(self._shards.own, range(self._shards.count))
        ]
        self._lane = self._lanes[0]
        self._rebinding.began(residents_of(self._lanes))

    def _sub_topologies(self) -> Mapping[str, str]:
        return self._shards.sub_topologies

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- topics ---------------------------------------------------------------------------------------------------

    @overload
    def input(
        self,
        topic: str,
        *,
        start: Instant | None = ...,
        advance: Duration = ...,
    ) -> InputTopic[Any, Any]: ...

    @overload
    def input(
        self,
        topic: str,
        *,
        value: type[V] | Serde[V],
        start: Instant | None = ...,
        advance: Duration = ...,
    ) -> InputTopic[Any, V]: ...

    @overload
    def input(
        self,
        topic: str,
        *,
        key: type[K] | Serde[K],
        start: Instant | None = ...,
        advance: Duration = ...,
    ) -> InputTopic[K, Any]: ...

    @overload
    def input(
        self,
        topic: str,
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        start: Instant | None = ...,
        advance: Duration = ...,
    ) -> InputTopic[K, V]: ...

    def input(
        self, topic: str, *, key: Any = None, value: Any = None, start: Instant | None = None, advance: Duration = 0
    ) -> InputTopic[Any, Any]:
        """A topic to pipe records into, by default with the serdes of the source that reads it.

        Records without a timestamp get the time `start` (default: the driver's wall clock), and each one moves it by
        `advance`.
        """
        node = self._intake(topic).node
        start_ms = self._now if start is None else instant_ms(start)
        serdes = of_topic(self._registry, topic, serde_given(key, node.key), serde_given(value, node.value))
        return InputTopic(self, topic, *serdes, start_ms, duration_ms(advance))

    @overload
    def output(self, topic: str) -> OutputTopic[Any, Any]: ...

    @overload
    def output(self, topic: str, *, value: type[V] | Serde[V]) -> OutputTopic[Any, V]: ...

    @overload
    def output(self, topic: str, *, key: type[K] | Serde[K]) -> OutputTopic[K, Any]: ...

    @overload
    def output(self, topic: str, *, key: type[K] | Serde[K], value: type[V] | Serde[V]) -> OutputTopic[K, V]: ...

    def output(self, topic: str, *, key: Any = None, value: Any = None) -> OutputTopic[Any, Any]:
        """A topic to read results from, by default with the serdes of the sink that writes it.

        Dead letters are read as bytes.
        """
        if topic in self._handlers.dead_letter_topics() | self._topology.dead_letter_topics():
            return OutputTopic(self._outputs[topic], serde_given(key, Bytes()), serde_given(value, Bytes()))
        sinks = [node for node in self._nodes.values() if isinstance(node, SinkNode) and not node.internal]
        fixed = [node for node in sinks if node.topic == topic] or [node for node in sinks if not isinstance(node.topic, str)]
        if not fixed and (key is None or value is None):
            known = ", ".join(sorted(str(node.topic) for node in sinks if isinstance(node.topic, str))) or "none"
            raise TopologyError(f"The topology writes no topic {topic!r}. It writes: {known}.")
        node = fixed[0] if fixed else None
        serdes = serde_given(key, node.key if node else None), serde_given(value, node.value if node else None)
        return OutputTopic(self._outputs[topic], *of_topic(self._registry, topic, *serdes))

    def produced_topic_names(self) -> set[str]:
        """Topics with at least one written record; exchanges are not topics."""
        return set(self._produced)

    # ---- state and time -------------------------------------------------------------------------------------------

    def store(self, name: str) -> Any:
        """A store, to read it or to fill it before a test; a table's by its topic, too, as in queries.

        With several shards, it is read over all of them, as `running.store` in an application; only a global store can be filled.
        """
        return self._shards.store(name, self._lane.stores)

    def stores(self) -> Mapping[str, Any]:
        """All stores by name."""
        return {name: self.store(name) for name in self._shards.names}

    def dropped(self) -> Mapping[tuple[str, str], int]:
        """How many records were skipped, by node and reason."""
        return dropped_by(self._lanes)

    def advance_wall_clock(self, advance: Duration) -> None:
        """Move the wall clock, and run everything that becomes due: punctuators, timers, schedules."""
        self._now += duration_ms(advance)
        for lane in self._lanes:
            lane.clocks.fire_punctuators()
        is_more = True
        while is_more:
            is_more = sum(lane.clocks.fire_timers() for lane in self._lanes) > 0
            self._commit()
            self._complete()
        self._reach(self._watermarks.advance(self._now))
        self._rebinding.end_batch(residents_of(self._lanes), self.seed)

    def advance_watermark(self, to: Instant) -> None:
        """Move the application's watermark, and run everything that becomes due: windows close, event-time timers fire.

        A watermark never goes back: an earlier one has no effect.
        """
        if not self._watermarks.are_told:
            raise TopologyError("The topology has no watermark: no source was declared with watermark=.")
        self._reach(instant_ms(to, "to"))
        self._rebinding.end_batch(residents_of(self._lanes), self.seed)

    def close(self) -> None:
        """Close processors, stores, and the clients of asynchronous verbs."""
        try:
            close_all(self._lanes)
        finally:
            self._state.close()
            self._callers.close()
            self._loop.stop()

    # ---- inside ---------------------------------------------------------------------------------------------------

    def pipe_raw(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Put one raw record into a topic and process it with everything it causes."""
        if self._watermarks.are_told:  # a timer may have been set for a time that has already passed
            self._hear_of(self._lane.clocks.watermark.floor)
        self._accept(topic, self._intake(topic), RawRecord(key, value, timestamp, headers))
        self._deliver()
        self._complete()
        self._rebinding.end_batch(residents_of(self._lanes), self.seed)

    def _intake(self, topic: str) -> Intake:
        found = self._find_intake(topic)
        if found is None:
            sources = [node for node in self._topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
            known = ", ".join(sorted(topic for node in sources for topic in node.topics)) or "none"
            raise TopologyError(f"The topology reads no topic {topic!r}. It reads: {known}.")
        return found

    def _find_intake(self, topic: str) -> Intake | None:
        by_pattern = None
        for intake in self._lane.intakes.values():
            if topic in intake.node.topics:
                return intake
            if intake.node.pattern is not None and intake.node.pattern.fullmatch(topic):
                by_pattern = intake
        return by_pattern

    def _accept(self, topic: str, intake: Intake, raw: RawRecord, partition: int = 0) -> None:
        if intake.node.name in self._global_sources:
            self._feed_global(topic, intake, raw)
        else:
            self._sections.get(intake.node.name, self._queues).add(topic, intake, raw, partition)

    def _decode(self, intake: Intake, origin: RecordMetadata, raw: RawRecord, partition_time: int) -> Arrival | None:
        return intake.decode(self._lane.failures, origin, raw, partition_time)

    def _feed_global(self, topic: str, intake: Intake, raw: RawRecord) -> None:
        offset = self._global_offsets[topic]
        self._global_offsets[topic] += 1
        origin = RecordMetadata(topic, 0, offset)
        arrival = self._decode(intake, origin, raw, NO_TIMESTAMP)
        if arrival is not None:
            self._lane.cursor.position = At(origin, raw)
            intake.process(*arrival)
            self._commit_stores()

    def _complete(self) -> None:
        """Process records until none are pending."""
        self._take_queued()
        self._reach(self._watermarks.advance(self._now))

    def _take_queued(self) -> None:
        while (following := first_of(self._queues, *self._sections.values())) is not None:
            self._process(*following)

    def _process(self, intake: Intake, head: Head) -> None:
        """Process one record as its own epoch."""
        arrival, origin, raw = head
        lane = self._lanes[self._shards.of(intake, origin, raw)]
        clocks = lane.clocks
        clocks.fire_timers()
        if self._watermarks.are_told and not intake.node.internal:
            self._watermarks.attach((each.clocks.watermark for each in self._lanes), intake, origin.topic, self._now)
        lane.cursor.position = At(origin, raw)
        stream_time = clocks.stream_time_of(intake.node.name)
        stream_time.reach(arrival.timestamp)
        lane.entrances.of(lane.intakes[intake.node.name])(*arrival)
        clocks.punctuate(stream_time)
        self._commit()
        if self._watermarks.are_told and not intake.node.internal:
            self._watermarks.heard(intake, arrival, origin, self._now)

    def _reach(self, watermark: int) -> None:
        """Advance the application's watermark: the first thing that an epoch does."""
        if watermark > self._lane.clocks.watermark.floor:
            self._hear_of(watermark)
            self._complete()

    def _hear_of(self, watermark: int) -> None:
        """Let the nodes of all shards receive the watermark, those behind an exchange after the records that come through it."""
        for lane in self._lanes:
            lane.clocks.watermark.time = NO_TIMESTAMP
        for have_reacted in zip(*(lane.clocks.watermark.advance(watermark) for lane in self._lanes), strict=True):
            if any(have_reacted):
                self._commit()
                self._take_queued()
        self._commit()

    def _commit_stores(self) -> None:
        self._epoch += 1
        self._policy.epoch = self._epoch + 1
        self._state.commit(self._epoch)

    def _commit(self) -> None:
        """End the epoch: flush caches, write stores, deliver rows."""
        flush(self._lanes)
        self._commit_stores()
        self._deliver()

    def _deliver(self) -> None:
        """Deliver rows to outputs or back to inputs; a row that comes back may become a dead letter, which is delivered too."""
        while rows := sent_by(self._lanes):
            for row, shard in rows:
                if not row.is_exchanged:
                    self._outputs[row.topic].append(row)
                    self._produced.add(row.topic)
                back = self._find_intake(row.topic)
                if back is not None:
                    raw = RawRecord(row.key, row.value, row.timestamp, row.headers)
                    self._accept(row.topic, back, raw, shard if row.is_exchanged else 0)
