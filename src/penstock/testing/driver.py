"""`TopologyTestDriver`: a topology under test, in this process, with a clock moved by hand.

It hosts one lane with all stages. Each record is an epoch of its own: processed, flushed, committed; what goes to an
exchange or to a topic that the topology reads comes back in before the next one, as in Kafka Streams' own driver.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from penstock.calls import Callers, LoopThread
from penstock.errors import TopologyError
from penstock.handlers import DEFAULT, ErrorHandler, ErrorHandlers
from penstock.lanes.failures import Failures
from penstock.lanes.lane import Lane
from penstock.lanes.outbox import Row
from penstock.lanes.position import At, RawRecord
from penstock.lanes.sources import Arrival, Intake
from penstock.operators.asynchronous import MapAsync, MapValuesAsync, ProcessAsync
from penstock.records import NO_TIMESTAMP, Headers, RecordMetadata
from penstock.serdes import Bytes, Serde, serde_of
from penstock.state import LaneState, memory_engine
from penstock.testing.queues import Head, TopicQueues
from penstock.testing.topics import InputTopic, OutputTopic
from penstock.testing.virtual_time import VirtualTimeLoop
from penstock.testing.watermarks import TopicWatermarks
from penstock.timing import Duration, Instant, duration_ms, instant_ms
from penstock.topology import ProcessorNode, SinkNode, SourceNode, Topology, watermarked_nodes

if TYPE_CHECKING:
    from typing_extensions import Self

APPLICATION_ID = "topology-test-driver"
"""The application that dead letters name."""


class TopologyTestDriver:
    """Runs a topology without a broker, a JVM or Spark.

    `wall_clock` is where the wall clock starts (default: now); it moves only by `advance_wall_clock`. `caching=False`
    lets every table emit each of its updates. `partitions` is how many partitions a partitioner is told that topics have. The
    error handlers are those of `App`; a retry does not wait here. `fakes` are functions that stand in for others, by the function
    that the topology was built with: what an asynchronous verb calls, or its `setup=`. Calls take no time here: while nothing
    but time is waited for, a clock of their own is put forward.

    Example:
        >>> from penstock import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("in", value=str).map_values(str.upper).to("out", value=str)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("in").pipe("hello", key="a")
        ...     driver.output("out").table()
        {'a': 'HELLO'}
    """

    def __init__(
        self,
        topology: Topology,
        *,
        wall_clock: Instant | None = None,
        caching: bool = True,
        partitions: int = 1,
        deserialization_errors: ErrorHandler = DEFAULT,
        processing_errors: ErrorHandler = DEFAULT,
        production_errors: ErrorHandler = DEFAULT,
        fakes: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType({}),
    ) -> None:
        self._topology = topology
        self._loop = LoopThread(lambda thread: VirtualTimeLoop(lambda: self._now, thread))
        self._callers = Callers(self._loop, _checked(fakes, topology))
        self._handlers = ErrorHandlers(
            deserialization=deserialization_errors, processing=processing_errors, production=production_errors
        )
        self._now = int(time.time() * 1000) if wall_clock is None else instant_ms(wall_clock)
        self._engine = memory_engine()
        self._epoch = 0
        self._failures = Failures(self._handlers, APPLICATION_ID, epoch=1, sleep=_do_not_wait)
        self._sections = {name: TopicQueues(self._decode) for name in _sections(topology)}
        self._queues = TopicQueues(self._decode)
        self._outputs: defaultdict[str, deque[Row]] = defaultdict(deque)
        self._produced: set[str] = set()
        self._global_offsets: defaultdict[str, int] = defaultdict(int)
        self._specs = {name: spec if caching else replace(spec, cached=False) for name, spec in topology.stores.items()}
        self._global_sources = set(topology.global_stores.values())
        self._partitions = partitions
        self._watermarks = TopicWatermarks(topology, self._now)
        self._bind()

    def _bind(self) -> None:
        """The lane over the state as committed: what every epoch begins with on Spark, and a driver only once."""
        self._state = LaneState(self._engine)
        self._lane = Lane(
            list(self._topology.nodes.values()),
            self._specs,
            self._state,
            wall_clock=lambda: self._now,
            partitions=lambda topic: self._partitions,
            global_stores=self._topology.global_stores,
            failures=self._failures,
            callers=lambda: self._callers,
            watermark=NO_TIMESTAMP if self._watermarks.are_told else None,
            watermarked=watermarked_nodes(self._topology.nodes),
            sub_topologies=self._sub_topologies(),
        )

    def _sub_topologies(self) -> Mapping[str, str]:
        """Which nodes have a stream time together: all of them, as in Kafka Streams' own driver."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- topics ---------------------------------------------------------------------------------------------------

    def input(
        self, topic: str, *, key: Any = None, value: Any = None, start: Instant | None = None, advance: Duration = 0
    ) -> InputTopic:
        """A topic to pipe records into, with the serdes of the source that reads it unless others are given.

        Records without a timestamp of their own are stamped `start` (default: the driver's wall clock), and each one
        moves it by `advance`.
        """
        node = self._intake(topic).node
        start_ms = self._now if start is None else instant_ms(start)
        return InputTopic(self, topic, _serde(key, node.key), _serde(value, node.value), start_ms, duration_ms(advance))

    def output(self, topic: str, *, key: Any = None, value: Any = None) -> OutputTopic:
        """A topic to read results from, with the serdes of the sink that writes it unless others are given.

        Dead letters are read as bytes.
        """
        if topic in self._handlers.dead_letter_topics() | self._topology.dead_letter_topics():
            return OutputTopic(self._outputs[topic], _serde(key, Bytes()), _serde(value, Bytes()))
        sinks = [node for node in self._topology.nodes.values() if isinstance(node, SinkNode) and not node.internal]
        fixed = [node for node in sinks if node.topic == topic] or [node for node in sinks if not isinstance(node.topic, str)]
        if not fixed and (key is None or value is None):
            known = ", ".join(sorted(str(node.topic) for node in sinks if isinstance(node.topic, str))) or "none"
            raise TopologyError(f"the topology writes no topic {topic!r}; it writes: {known}")
        node = fixed[0] if fixed else None
        return OutputTopic(
            self._outputs[topic], _serde(key, node.key if node else None), _serde(value, node.value if node else None)
        )

    def produced_topic_names(self) -> set[str]:
        """Topics that something was written to; exchanges are not topics."""
        return set(self._produced)

    # ---- state and time -------------------------------------------------------------------------------------------

    def store(self, name: str) -> Any:
        """A store, to read or to prepare."""
        return self._lane.store(name)

    def stores(self) -> Mapping[str, Any]:
        """All stores by name."""
        return {name: self._lane.store(name) for name in self._topology.stores}

    def dropped(self) -> Mapping[tuple[str, str], int]:
        """How many records were skipped, by node and reason."""
        return self._lane.dropped

    def advance_wall_clock(self, advance: Duration) -> None:
        """Move the wall clock, and with it everything that waits for it: punctuators, timers, schedules."""
        self._now += duration_ms(advance)
        self._lane.advance_wall_clock()
        is_more = True
        while is_more:
            is_more = self._lane.fire_timers()
            self._commit()
            self._complete()
        self._reach(self._watermarks.advance(self._now))

    def advance_watermark(self, to: Instant) -> None:
        """Move the application's watermark, and with it all that waits for it: windows close, event-time timers fire.

        A watermark does not go back: an earlier one changes nothing.
        """
        if not self._watermarks.are_told:
            raise TopologyError("nothing waits for a watermark: no source of the topology was declared with watermark=")
        self._reach(instant_ms(to, "to"))

    def close(self) -> None:
        """Close processors, stores, and the clients of asynchronous verbs."""
        try:
            self._lane.close()
        finally:
            self._state.close()
            self._callers.close()
            self._loop.stop()

    # ---- inside ---------------------------------------------------------------------------------------------------

    def pipe_raw(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Put one raw record into a topic and process all that follows from it."""
        if self._watermarks.are_told:  # a timer may have been set for a time that has come already
            self._hear_of(self._lane.attached.floor)
        self._accept(topic, self._intake(topic), RawRecord(key, value, timestamp, headers))
        self._deliver()
        self._complete()

    def _intake(self, topic: str) -> Intake:
        found = self._find_intake(topic)
        if found is None:
            sources = [node for node in self._topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
            known = ", ".join(sorted(topic for node in sources for topic in node.topics)) or "none"
            raise TopologyError(f"the topology reads no topic {topic!r}; it reads: {known}")
        return found

    def _find_intake(self, topic: str) -> Intake | None:
        by_pattern = None
        for intake in self._lane.intakes.values():
            if topic in intake.node.topics:
                return intake
            if intake.node.pattern is not None and intake.node.pattern.fullmatch(topic):
                by_pattern = intake
        return by_pattern

    def _accept(self, topic: str, intake: Intake, raw: RawRecord) -> None:
        if intake.node.name in self._global_sources:
            self._feed_global(topic, intake, raw)
        else:
            self._sections.get(intake.node.name, self._queues).add(topic, intake, raw)

    def _decode(self, intake: Intake, origin: RecordMetadata, raw: RawRecord, partition_time: int) -> Arrival | None:
        return intake.decode(self._lane, origin, raw, partition_time)

    def _feed_global(self, topic: str, intake: Intake, raw: RawRecord) -> None:
        offset = self._global_offsets[topic]
        self._global_offsets[topic] += 1
        origin = RecordMetadata(topic, 0, offset)
        arrival = self._decode(intake, origin, raw, NO_TIMESTAMP)
        if arrival is not None:
            self._lane.position = At(origin, raw)
            intake.process(*arrival)
            self._commit_stores()

    def _complete(self) -> None:
        """Process until nothing waits."""
        self._take_queued()
        self._reach(self._watermarks.advance(self._now))

    def _take_queued(self) -> None:
        while (following := self._take()) is not None:
            self._process(*following)

    def _process(self, intake: Intake, head: Head) -> None:
        """One record: an epoch of its own."""
        arrival, origin, raw = head
        lane = self._lane
        lane.fire_timers()
        if self._watermarks.are_told and not intake.node.internal:
            self._watermarks.attach(lane.attached, intake, origin.topic, self._now)
        lane.position = At(origin, raw)
        stream_time = lane.stream_time_of(intake.node.name)
        stream_time.reach(arrival.timestamp)
        lane.entrances.of(lane.intakes[intake.node.name])(*arrival)
        lane.punctuate(stream_time)
        self._commit()
        if self._watermarks.are_told and not intake.node.internal:
            self._watermarks.heard(intake, arrival, origin, self._now)

    def _take(self) -> tuple[Intake, Head] | None:
        """What is next: a record for an atomic section only when nothing else waits."""
        queues = (self._queues, *self._sections.values())
        return next((following for queue in queues if (following := queue.take()) is not None), None)

    def _reach(self, watermark: int) -> None:
        """Let the application's watermark come as far: the first thing that an epoch does."""
        if watermark > self._lane.attached.floor:
            self._hear_of(watermark)
            self._complete()

    def _hear_of(self, watermark: int) -> None:
        self._lane.attached.time = NO_TIMESTAMP
        self._lane.advance_watermark(watermark, self._settle)
        self._commit()

    def _settle(self) -> None:
        """Bring what was sent to exchanges to where it goes on, before nodes there hear of the watermark."""
        self._commit()
        self._take_queued()

    def _commit_stores(self) -> None:
        self._epoch += 1
        self._failures.epoch = self._epoch + 1
        self._state.commit(self._epoch)

    def _commit(self) -> None:
        """End the epoch: caches emit, stores are written, rows go out or come back in."""
        self._lane.flush()
        self._commit_stores()
        self._deliver()

    def _deliver(self) -> None:
        """Rows go out or come back in; one that comes back may at once become a dead letter, which goes out too."""
        while rows := self._lane.drain():
            for row in rows:
                if not row.exchange:
                    self._outputs[row.topic].append(row)
                    self._produced.add(row.topic)
                back = self._find_intake(row.topic)
                if back is not None:
                    self._accept(row.topic, back, RawRecord(row.key, row.value, row.timestamp, row.headers))


def _checked(
    fakes: Mapping[Callable[..., Any], Callable[..., Any]], topology: Topology
) -> Mapping[Callable[..., Any], Callable[..., Any]]:
    """The fakes, once it is known that the topology calls what they stand in for."""
    operators = [node.operator for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    calls = [operator.call for operator in operators if isinstance(operator, (MapAsync, MapValuesAsync, ProcessAsync))]
    known = [function for call in calls for function in (call.function, call.setup) if function is not None]
    for function in fakes:
        if function not in known:
            names = ", ".join(getattr(each, "__qualname__", repr(each)) for each in known) or "none"
            raise TopologyError(
                f"fakes= has one for {function!r}, which no asynchronous verb of the topology calls; called are: {names}"
            )
    return fakes


def _sections(topology: Topology) -> list[str]:
    """The sources of atomic sections, in order."""
    nodes = topology.nodes.values()
    return [node.parents[0] for node in nodes if isinstance(node, ProcessorNode) and node.operator.runs_serially]


def _do_not_wait(seconds: float) -> None:
    """What a back-off is in a test."""


def _serde(given: Any, known: Serde[Any] | None) -> Serde[Any]:
    if given is not None:
        return serde_of(given)
    if known is None:
        raise TopologyError("say key= and value=: the topology does not know the serdes of this topic")
    return known
