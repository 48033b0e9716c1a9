"""Pending records, in one queue per topic; the next one is the head with the lowest time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.lanes.heap import TimeHeap
from penstock.lanes.position import RawRecord
from penstock.lanes.sources import Arrival, Intake
from penstock.records import NO_TIMESTAMP, RecordMetadata
from penstock.topology import ProcessorNode, Topology

Decode = Callable[[Intake, RecordMetadata, RawRecord, int], Arrival | None]
"""`decode(intake, origin, raw, partition_time)`: the decoded record; None if it was dropped."""


class Head(NamedTuple):
    """A decoded record, and where it came from."""

    arrival: Arrival
    origin: RecordMetadata
    raw: RawRecord


class TopicQueue:
    """The pending records of one topic, or of all topics of a pattern.

    Only the head is decoded, because event times may depend on earlier records.
    """

    def __init__(self, intake: Intake, decode: Decode) -> None:
        self.intake = intake
        self._decode = decode
        self._offset = 0
        self._waiting: deque[tuple[RecordMetadata, RawRecord]] = deque()
        self._head: Head | None = None
        self._partition_time = NO_TIMESTAMP

    def add(self, topic: str, raw: RawRecord, partition: int) -> None:
        """Append a record."""
        self._waiting.append((RecordMetadata(topic, partition, self._offset), raw))
        self._offset += 1
        self._decode_head()

    @property
    def is_empty(self) -> bool:
        """Whether no record is pending."""
        return self._head is None

    @property
    def head_time(self) -> int:
        """The event time of the next record."""
        return NO_TIMESTAMP if self._head is None else self._head.arrival.timestamp

    def take(self) -> Head:
        """Remove and return the next record."""
        head = self._head
        assert head is not None
        self._head = None
        self._partition_time = max(self._partition_time, head.arrival.timestamp)
        self._decode_head()
        return head

    def _decode_head(self) -> None:
        while self._head is None and self._waiting:
            origin, raw = self._waiting.popleft()
            arrival = self._decode(self.intake, origin, raw, self._partition_time)
            if arrival is not None:
                self._head = Head(arrival, origin, raw)


class TopicQueues:
    """All queues of a topology under test."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._queues: dict[str, TopicQueue] = {}
        self._ready: TimeHeap[TopicQueue] = TimeHeap(lambda queue: queue.head_time)

    def add(self, topic: str, intake: Intake, raw: RawRecord, partition: int = 0) -> None:
        """Append a record of a topic that `intake` reads."""
        name = intake.node.name if intake.node.pattern else topic
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = TopicQueue(intake, self._decode)
        was_empty = queue.is_empty
        queue.add(topic, raw, partition)
        if was_empty and not queue.is_empty:
            self._ready.push(queue)

    def take(self) -> tuple[Intake, Head] | None:
        """Remove and return the next record of all topics, with its source."""
        queue = self._ready.pop()
        if queue is None:
            return None
        head = queue.take()
        if not queue.is_empty:
            self._ready.push(queue)
        return queue.intake, head


def first_of(*queues: TopicQueues) -> tuple[Intake, Head] | None:
    """Take the next record of the first queues that have one: atomic sections come last, when no other record is pending."""
    return next((following for queue in queues if (following := queue.take()) is not None), None)


def sections(topology: Topology) -> list[str]:
    """The sources of atomic sections, in order."""
    nodes = topology.nodes.values()
    return [node.parents[0] for node in nodes if isinstance(node, ProcessorNode) and node.operator.runs_serially]
