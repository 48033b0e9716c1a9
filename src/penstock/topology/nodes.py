"""The nodes of a topology: frozen values that remember where in the user's code they were declared."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from penstock.processor import Operator
from penstock.records import Record, RecordContext
from penstock.serdes import Serde

PACKAGE = str(Path(__file__).parent.parent)

TimestampExtractor = Callable[[Record[Any, Any], int], int]
"""`extractor(record, partition_time_ms) -> timestamp_ms`; a negative result drops the record."""

TopicExtractor = Callable[[Any, Any, RecordContext], str]
"""`extractor(key, value, context) -> topic`."""

Partitioner = Callable[[str, Any, Any, int], "int | None"]
"""`partitioner(topic, key, value, partitions) -> partition`, None for Kafka's default."""


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


@dataclass(frozen=True, slots=True)
class SourceNode:
    """Reads topics. `internal` sources read an exchange (Kafka Streams' repartition topic) of the topology itself."""

    name: str
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    key: Serde[Any]
    value: Serde[Any]
    line: Line
    timestamp: TimestampExtractor | None = None
    reset: str | None = None
    internal: bool = False

    @property
    def parents(self) -> tuple[str, ...]:
        """Sources have none."""
        return ()


@dataclass(frozen=True, slots=True)
class ProcessorNode:
    """Does something to records, with stores or without."""

    name: str
    parents: tuple[str, ...]
    operator: Operator
    stores: tuple[str, ...]
    line: Line


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
