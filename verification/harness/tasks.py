"""A topology on several tasks, as in Kafka Streams: one test driver per shard, and a router between them.

The router is written for tests only, so that Penstock's routing is compared with an independent implementation.
"""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from penstock.lanes.outbox import Row
from penstock.lanes.position import RawRecord
from penstock.lanes.sources import Arrival, Intake
from penstock.records import NO_TIMESTAMP, Headers, RecordMetadata
from penstock.state import LaneState
from penstock.testing import TopologyTestDriver
from penstock.testing.queues import Head
from penstock.topology import Topology

if TYPE_CHECKING:
    from typing_extensions import Self


class Tasks:
    """The tasks of a topology, one per shard; as a context manager they are closed on exit."""

    def __init__(self, topology: Topology, shards: int, **options: Any) -> None:
        self._tasks = [Task(self, number, topology, **options) for number in range(shards)]
        self._global_sources = set(topology.global_stores.values())
        self._waiting: deque[tuple[int, str, RawRecord, RecordMetadata | None]] = deque()
        self._ends: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.partition_times: dict[tuple[str, int], int] = {}
        """The highest event time of each source partition, shared by all tasks."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.close()

    def pipe_raw(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int = 0
    ) -> None:
        """Put one raw record into a topic and process everything it causes, in all tasks."""
        intake = self._tasks[0].intake(topic)
        offset = self._ends[topic, partition]
        self._ends[topic, partition] += 1
        origin = RecordMetadata(topic, partition, offset)
        self.route(topic, intake, RawRecord(key, value, timestamp, headers), partition % len(self._tasks), origin)
        self._process_all()

    def advance_wall_clock(self, advance_ms: int) -> None:
        """Advance the wall clock of all tasks."""
        for task in self._tasks:
            task.advance_wall_clock(advance_ms)
        self._process_all()

    def outputs(self) -> Mapping[str, Sequence[Row]]:
        """What was written to topics, task by task."""
        found: dict[str, list[Row]] = {}
        for task in self._tasks:
            for topic, rows in task.outputs().items():
                found.setdefault(topic, []).extend(rows)
        return found

    def states(self) -> list[LaneState]:
        """The stores of each task."""
        return [task.state() for task in self._tasks]

    def route(self, topic: str, intake: Intake, raw: RawRecord, sender: int, origin: RecordMetadata | None = None) -> None:
        """Route a record to its key's shard, or to the sender's without a key; to all tasks for a global table."""
        if intake.node.name in self._global_sources:
            for task in self._tasks:
                task.feed_global(topic, raw)
        else:
            shard = sender if raw.key is None else self._shard_of(intake, raw.key)
            self._waiting.append((shard, topic, raw, origin))

    def _shard_of(self, intake: Intake, key: bytes) -> int:
        serde = intake.node.key
        try:
            canonical = serde.serialize(serde.deserialize(key))
        except Exception:  # noqa: BLE001 - an unreadable key fails in its task
            canonical = key
        return zlib.crc32(canonical) % len(self._tasks)

    def _process_all(self) -> None:
        while self._waiting:
            shard, topic, raw, origin = self._waiting.popleft()
            self._tasks[shard].process(topic, raw, origin)


class Task(TopologyTestDriver):
    """One task: a test driver that passes records of exchanges to the router."""

    def __init__(self, tasks: Tasks, number: int, topology: Topology, **options: Any) -> None:
        self._all = tasks
        self._number = number
        super().__init__(topology, **options)

    def intake(self, topic: str) -> Intake:
        """The intake of a topic's records."""
        return self._intake(topic)

    def feed_global(self, topic: str, raw: RawRecord) -> None:
        """Feed a record to a global table."""
        self._feed_global(topic, self._intake(topic), raw)

    def process(self, topic: str, raw: RawRecord, origin: RecordMetadata | None) -> None:
        """Process a record; one without an origin comes from no source partition."""
        intake, begun = self._intake(topic), origin or RecordMetadata(topic, 0, 0)
        arrival = self._decode(intake, begun, raw, NO_TIMESTAMP)
        if arrival is not None:
            self._process(intake, Head(arrival, begun, raw))
        self._deliver()

    def outputs(self) -> Mapping[str, Sequence[Row]]:
        """What was written to topics."""
        return {topic: list(rows) for topic, rows in self._outputs.items()}

    def state(self) -> LaneState:
        """The stores."""
        return self._state

    @override
    def _take_queued(self) -> None:
        """Do nothing: `Tasks` decides which task is next."""

    @override
    def _sub_topologies(self) -> Mapping[str, str]:
        """See `TopologyTestDriver`; a Kafka Streams task has one sub-topology."""
        return {name: group[0] for group in self._topology.groups() for name in group}

    @override
    def _decode(self, intake: Intake, origin: RecordMetadata, raw: RawRecord, partition_time: int) -> Arrival | None:
        """See `TopologyTestDriver`; a task sees part of a partition, but the partition's time covers all tasks."""
        if intake.node.internal:
            return super()._decode(intake, origin, raw, partition_time)
        times, place = self._all.partition_times, origin[:2]
        known = times.get(place, NO_TIMESTAMP)
        arrival = super()._decode(intake, origin, raw, known)
        times[place] = max(known, NO_TIMESTAMP if arrival is None else arrival.timestamp)
        return arrival

    @override
    def _accept(self, topic: str, intake: Intake, raw: RawRecord, partition: int = 0) -> None:
        self._all.route(topic, intake, raw, self._number, self._lane.cursor.metadata())
