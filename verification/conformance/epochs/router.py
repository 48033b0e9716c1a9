"""Routes a record by the rules, independently of Penstock's code: its source, its event time, its shard, its order."""

from __future__ import annotations

import heapq
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.records import NO_TIMESTAMP, Headers, SourceRecord
from penstock.serdes import SessionWindowed, TimeWindowed
from penstock.topology import SinkNode, SourceNode, Topology
from verification.conformance.epochs.spec import Input
from verification.conformance.run import to_bytes
from verification.conformance.spec import Op, Step

Origin = tuple[str, int]
"""A topic and a partition of it."""

SINK_PARTITIONS = 4
"""The number of partitions of topics that are written."""

SPELLINGS = ('{{"k":"{0}"}}', '{{"k": "{0}"}}', ' {{ "k" :"{0}"}} ', '{{"k":"{0}" }}\n')
"""Encodings of one JSON key; the first is Penstock's."""


@dataclass(frozen=True)
class Arrived:
    """A record as in its topic, and as its source decodes it. `time` is -1 if the source drops it."""

    origin: Origin
    offset: int
    source: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    time: int
    read: tuple[Any, Any]
    shard: int


def shard_of(key: bytes, shards: int) -> int:
    """The shard of a key."""
    return zlib.crc32(key) % shards


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, by its definition."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    found, whole = 0x9747B28C ^ len(data), len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = word * factor & mask
        found = (found * factor & mask) ^ ((mixed ^ mixed >> 24) * factor & mask)
    if data[whole:]:
        found = (found ^ int.from_bytes(data[whole:], "little")) * factor & mask
    found = (found ^ found >> 13) * factor & mask
    return found ^ found >> 15


class Partitions:
    """The partitions of what sinks write: of a windowed key, the key within decides."""

    def __init__(self, topology: Topology, ops: Iterable[Op]) -> None:
        sinks = [node for node in topology.nodes.values() if isinstance(node, SinkNode) and not node.internal]
        written: list[str] = [
            op.args["topic"] for op in ops if op.verb in {"stream_to", "stream_to_dynamic", "topology_add_sink"}
        ]
        self._sinks: dict[str, SinkNode] = dict(zip(written, sinks, strict=True))

    def of(self, topic: str, key: bytes | None) -> int | None:
        """The partition of a record; None if it may be any."""
        node = self._sink(topic)
        if node.partitioner is not None:
            return 0
        if key is None:
            return None
        return (murmur2(key[: len(key) - _times_behind(node)]) & 0x7FFFFFFF) % SINK_PARTITIONS

    def are_by_key(self, topic: str) -> bool:
        """Whether nothing but the whole key decides."""
        node = self._sink(topic)
        return node.partitioner is None and not _times_behind(node)

    def _sink(self, topic: str) -> SinkNode:
        return self._sinks.get(topic) or self._sinks[topic.rpartition("-")[0]]


def _times_behind(sink: SinkNode) -> int:
    """The bytes of a window's times behind the key: its start, or the start and the end of a session."""
    return 8 if isinstance(sink.key, TimeWindowed) else 16 if isinstance(sink.key, SessionWindowed) else 0


def spelt(serde: str, step: Input) -> bytes | None:
    """The key's bytes as the producer wrote them."""
    if serde == "json" and step.key is not None:
        return SPELLINGS[step.blanks].format(step.key).encode()
    return to_bytes(serde, step.key)


class Router:
    """Reads input records in the order of their partitions."""

    def __init__(self, topology: Topology, topics: Mapping[str, tuple[str, str]], shards: int) -> None:
        self._sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
        self._topics = topics
        self._shards = shards
        self._ends: dict[Origin, int] = {}
        self._times: dict[Origin, int] = {}
        self._by_topic: dict[str, SourceNode] = {}

    def source(self, topic: str) -> SourceNode:
        """The source that reads a topic."""
        if topic not in self._by_topic:
            by_name = [node for node in self._sources if topic in node.topics]
            by_pattern = [node for node in self._sources if node.pattern is not None and node.pattern.fullmatch(topic)]
            self._by_topic[topic] = (by_name + by_pattern)[0]
        return self._by_topic[topic]

    def arrive(self, step: Input) -> Arrived:
        """The next record of its partition."""
        node, origin = self.source(step.topic), (step.topic, step.partition)
        key_serde, value_serde = self._topics[step.topic]
        key, value = spelt(key_serde, step), to_bytes(value_serde, step.value)
        value = None if value is None else value * step.times
        headers = tuple((name, None if text is None else text.encode()) for name, text in step.headers)
        offset = self._ends.get(origin, 0)
        self._ends[origin] = offset + 1
        read = (None if key is None else node.key.deserialize(key), None if value is None else node.value.deserialize(value))
        time, highest = step.at, self._times.get(origin, NO_TIMESTAMP)
        if node.timestamp is not None:
            time = int(node.timestamp(SourceRecord(*read, step.at, headers, *origin, offset, highest)))
        self._times[origin] = max(highest, time)
        shard = step.partition % self._shards if key is None else shard_of(node.key.serialize(read[0]), self._shards)
        return Arrived(origin, offset, node.name, key, value, step.at, headers, max(time, NO_TIMESTAMP), read, shard)


def origins_of(steps: Iterable[Step]) -> dict[Origin, int]:
    """All source partitions in the order that breaks ties."""
    found = {(step.topic, step.partition) for step in steps if isinstance(step, Input)}
    return {origin: number for number, origin in enumerate(sorted(found))}


def merged(records: Iterable[Arrived], origins: Mapping[Origin, int]) -> list[Arrived]:
    """The records in processing order: always the lowest time at the head of a partition, offsets in order."""
    queues: dict[Origin, list[Arrived]] = {}
    for record in records:
        if record.time != NO_TIMESTAMP:
            queues.setdefault(record.origin, []).append(record)
    heads = [(queue[0].time, origins[origin], 0, origin) for origin, queue in queues.items()]
    heapq.heapify(heads)
    found = []
    while heads:
        _, number, at, origin = heapq.heappop(heads)
        queue = queues[origin]
        found.append(queue[at])
        if at + 1 < len(queue):
            heapq.heappush(heads, (queue[at + 1].time, number, at + 1, origin))
    return found


def is_well_ordered(records: Iterable[Arrived]) -> bool:
    """Whether the merged order is the same for any part of the records: one partition, or times that do not go back."""
    highest: dict[Origin, int] = {}
    goes_back = False
    for record in records:
        if record.time != NO_TIMESTAMP:
            goes_back = goes_back or record.time < highest.get(record.origin, NO_TIMESTAMP)
            highest[record.origin] = max(record.time, highest.get(record.origin, NO_TIMESTAMP))
    return len(highest) <= 1 or not goes_back
