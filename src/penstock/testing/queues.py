"""Records that wait to be processed, one queue per topic; the next is the one with the lowest time at a queue's head."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from penstock.lanes.heap import TimeHeap
from penstock.lanes.sources import Arrival, Intake
from penstock.records import NO_TIMESTAMP, Headers, RecordMetadata


class Raw(NamedTuple):
    """A record as it lies in a topic."""

    origin: RecordMetadata
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class TopicQueue:
    """The waiting records of one topic, or of all topics of a pattern.

    Only the head is decoded, for its event time may depend on those before.
    """

    def __init__(self, intake: Intake) -> None:
        self.intake = intake
        self._offset = 0
        self._waiting: deque[Raw] = deque()
        self._head: tuple[Arrival, RecordMetadata] | None = None
        self._partition_time = NO_TIMESTAMP

    def add(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """One more record at the end."""
        self._waiting.append(Raw(RecordMetadata(topic, 0, self._offset), key, value, timestamp, headers))
        self._offset += 1
        self._decode_head()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return self._head is None

    @property
    def head_time(self) -> int:
        """The event time of the next record."""
        return NO_TIMESTAMP if self._head is None else self._head[0].timestamp

    def take(self) -> tuple[Arrival, RecordMetadata]:
        """The next record."""
        assert self._head is not None
        arrival, metadata = self._head
        self._head = None
        self._partition_time = max(self._partition_time, arrival.timestamp)
        self._decode_head()
        return arrival, metadata

    def _decode_head(self) -> None:
        while self._head is None and self._waiting:
            raw = self._waiting.popleft()
            arrival = self.intake.decode(*raw, self._partition_time)
            if arrival is not None:
                self._head = (arrival, raw.origin)


class TopicQueues:
    """All queues of a topology under test."""

    def __init__(self) -> None:
        self._queues: dict[str, TopicQueue] = {}
        self._ready: TimeHeap[TopicQueue] = TimeHeap(lambda queue: queue.head_time)

    def add(self, topic: str, intake: Intake, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """A record for a topic that `intake` reads."""
        name = intake.node.name if intake.node.pattern else topic
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = TopicQueue(intake)
        was_empty = queue.is_empty
        queue.add(topic, key, value, timestamp, headers)
        if was_empty and not queue.is_empty:
            self._ready.push(queue)

    def take(self) -> tuple[Intake, Arrival, RecordMetadata] | None:
        """The next record of all topics, with the source it belongs to."""
        queue = self._ready.pop()
        if queue is None:
            return None
        arrival, metadata = queue.take()
        if not queue.is_empty:
            self._ready.push(queue)
        return queue.intake, arrival, metadata
