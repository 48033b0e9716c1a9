"""The nodes of a topology: frozen values with the user's line that declared them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import TopologyError
from penstock.errors.lines import Line, user_line
from penstock.processor import Operator
from penstock.records import RecordContext, SourceRecord
from penstock.serdes import Serde
from penstock.timing import Schedule, Watermark, duration_ms
from penstock.topology.backfill import Backfill, Contents

if TYPE_CHECKING:
    from penstock.delivery.target import Target

TimestampExtractor = Callable[[SourceRecord[Any, Any]], int]
"""`extractor(record) -> timestamp_ms`; a negative result drops the record."""

TopicExtractor = Callable[[Any, Any, RecordContext], str]
"""`extractor(key, value, context) -> topic`."""

Partitioner = Callable[[str, Any, Any, int], "int | Collection[int] | None"]
"""`partitioner(topic, key, value, partitions)`: a partition, several (none drops the record), or None for Kafka's default."""


def offset_reset(reset: str | timedelta | None) -> str | int | None:
    """Return where to start without a committed offset: the name of a policy, or milliseconds before now."""
    if reset is None or reset in ("earliest", "latest", "none"):
        return None if reset is None else str(reset)
    try:
        return duration_ms(reset)
    except (TopologyError, TypeError, ValueError):
        raise TopologyError(
            f"Invalid reset {reset!r} ({user_line()}): it must be 'earliest', 'latest', 'none' or a duration before now."
        ) from None


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics. `internal` sources read an exchange (Kafka Streams' repartition topic) of the same topology.

    Without a `watermark`, lateness follows stream time, as in Kafka Streams, and the application's watermark ignores it.
    A source with a `schedule` reads nothing: the node below it creates records by the clock. What is in `backfill` is loaded into
    one of its topics first. A source with `contents` reads a topic of the application's own, which has what is in there.
    """

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key: Serde[Any]
    value: Serde[Any]
    line: Line
    timestamp: TimestampExtractor | None = None
    reset: str | int | None = None
    internal: bool = False
    watermark: Watermark | None = None
    schedule: Schedule | None = None
    backfill: Backfill | None = None
    contents: Contents | None = None

    @property
    def parents(self) -> tuple[str, ...]:
        """Sources have none."""
        return ()

    def reads(self, topic: str) -> bool:
        """Return whether it reads a topic, by name or by pattern."""
        return topic in self.topics or (self.pattern is not None and self.pattern.fullmatch(topic) is not None)

    def topics_shared_with(self, other: SourceNode) -> set[str]:
        """Return the topics that both read; a pattern does not match a topic of the application's own."""
        both = set(self.topics) & set(other.topics)
        for one, two in ((self, other), (other, self)):
            both |= {topic for topic in one.topics if one.contents is None and two.reads(topic)}
        return both


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """Runs an operator, with or without stores.

    `side_outputs` are the names of its side outputs, each with the child that gets their records; what it forwards goes to all
    other children. `shared` are the shared stores it uses, each with the sink for its writes; None if it writes nothing, or
    writes immediately.
    """

    name: str
    parents: tuple[str, ...]
    operator: Operator
    stores: tuple[str, ...]
    line: Line
    side_outputs: tuple[tuple[str, str], ...] = ()
    shared: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class SinkNode:
    """Writes to a topic, or (`internal`) to an exchange of the same topology.

    Records of the topic are delivered to `target`, if there is one, once they are committed. Without a `partitioner`, the key
    decides the partition, except for its last `partition_tail` bytes: the times of a windowed key, whose windows are together.
    """

    name: str
    parents: tuple[str, ...]
    topic: str | TopicExtractor
    key: Serde[Any]
    value: Serde[Any]
    line: Line
    partitioner: Partitioner | None = None
    internal: bool = False
    target: Target | None = None
    partition_tail: int = 0


Node = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True, slots=True)
class Exchange:
    """A re-keying of records within the topology: a repartition topic in Kafka Streams."""

    topic: str
    partitions: int | None = None
