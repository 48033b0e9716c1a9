"""The nodes of a topology: frozen values that remember where in the user's code they were declared."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import TopologyError
from penstock.processor import Operator
from penstock.records import RecordContext, SourceRecord
from penstock.serdes import Serde
from penstock.timing import Schedule, Watermark, duration_ms

PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"

TimestampExtractor = Callable[[SourceRecord[Any, Any]], int]
"""`extractor(record) -> timestamp_ms`; a negative result drops the record."""

TopicExtractor = Callable[[Any, Any, RecordContext], str]
"""`extractor(key, value, context) -> topic`."""

Partitioner = Callable[[str, Any, Any, int], "int | Collection[int] | None"]
"""`partitioner(topic, key, value, partitions)`: a partition, several (none drops the record), or None for Kafka's default."""


class Line(NamedTuple):
    """A line of the user's program."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} (in {self.function})"


def user_line() -> Line:
    """The innermost line on the stack that is not Penstock's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def offset_reset(reset: str | timedelta | None) -> str | int | None:
    """Where to start without a committed offset: a policy's name, or milliseconds back from now."""
    if reset is None or reset in ("earliest", "latest", "none"):
        return None if reset is None else str(reset)
    try:
        return duration_ms(reset)
    except (TopologyError, TypeError, ValueError):
        raise TopologyError(
            f"reset is 'earliest', 'latest', 'none' or a duration back from now, not {reset!r} ({user_line()})"
        ) from None


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics. `internal` sources read an exchange (Kafka Streams' repartition topic) of the topology itself.

    Without a `watermark` its records are judged by stream time, as in Kafka Streams, and nobody waits for them.
    One with a `schedule` reads nothing: below it stands a node that makes records by the clock.
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

    @property
    def parents(self) -> tuple[str, ...]:
        """Sources have none."""
        return ()

    def reads(self, topic: str) -> bool:
        """Whether it reads a topic, by its name or by the pattern."""
        return topic in self.topics or (self.pattern is not None and self.pattern.fullmatch(topic) is not None)


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """Does something to records, with stores or without.

    `side_outputs` are the names under which it may send records aside, each with the child that takes them: what it forwards
    goes to all other children. `shared` are the shared stores it uses, each with the sink that takes what it writes there; None
    where it writes nothing, or at once.
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
    """Writes a topic, or (`internal`) hands records to an exchange of the topology itself."""

    name: str
    parents: tuple[str, ...]
    topic: str | TopicExtractor
    key: Serde[Any]
    value: Serde[Any]
    line: Line
    partitioner: Partitioner | None = None
    internal: bool = False


Node = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True, slots=True)
class Exchange:
    """A re-keying point inside the topology: what Kafka Streams keeps in a repartition topic."""

    topic: str
    partitions: int | None = None
