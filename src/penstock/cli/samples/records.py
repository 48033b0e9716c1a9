"""Sample records for the topics of a topology, in the order in which an application would read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from penstock.cli.samples.files import Entry, Place, read_entries
from penstock.cli.samples.values import value_of
from penstock.errors import ConfigError, SerializationError
from penstock.records import NO_TIMESTAMP, Headers, SourceRecord
from penstock.timing import instant_ms
from penstock.topology import SourceNode, Topology


class Input(NamedTuple):
    """A file with records for a topic."""

    topic: str
    path: Path

    @classmethod
    def read(cls, text: str) -> Input:
        """Read it from `TOPIC=FILE`."""
        topic, _, path = text.partition("=")
        if not topic or not path:
            raise ConfigError(f"--input: expected TOPIC=FILE, got {text!r}.")
        return cls(topic, Path(path))


@dataclass(frozen=True, slots=True)
class Sample:
    """A record for a topic. `time` is its event time: that of the source's `timestamp=`, or its own timestamp."""

    place: Place
    topic: str
    key: Any
    value: Any
    timestamp: int
    headers: Headers
    time: int


class Samples(NamedTuple):
    """All samples: those that an application loads before it processes a record, and the others, in their order."""

    global_tables: list[Sample]
    streams: list[Sample]


def read_samples(inputs: Iterable[str], topology: Topology, now: int) -> Samples:
    """Read all files. Those of streams and tables come together by event time; each file keeps its order.

    A record without a timestamp has that of the record before it in its file, the first one `now`.
    """
    loaded: list[list[Sample]] = []
    others: list[list[Sample]] = []
    for file in map(Input.read, inputs):
        node = source_of(topology, file.topic)
        of_global_table = node.name in topology.global_stores.values()
        (loaded if of_global_table else others).append(list(_samples(file, node, now)))
    return Samples([*chain(*loaded)], [*merge(*others, key=lambda sample: sample.time)])


def source_of(topology: Topology, topic: str) -> SourceNode:
    """Return the source that reads a topic, by name or else by pattern; raise if there is none."""
    sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
    found = [node for node in sources if topic in node.topics] or [node for node in sources if node.reads(topic)]
    if not found:
        raise ConfigError(f"--input {topic}=…: the topology does not read that topic. It reads: {read_topics(sources)}.")
    return found[0]


def read_topics(sources: Sequence[SourceNode]) -> str:
    """Return the names and patterns of what sources read, for messages."""
    names = {topic for node in sources for topic in node.topics}
    patterns = {node.pattern.pattern for node in sources if node.pattern is not None}
    return ", ".join(sorted(names | patterns)) or "nothing"


def _samples(file: Input, node: SourceNode, now: int) -> Iterator[Sample]:
    timestamp, highest = now, NO_TIMESTAMP
    for offset, entry in enumerate(read_entries(file.path)):
        timestamp = timestamp if entry.timestamp is None else entry.timestamp
        key, value = _converted(node, entry)
        record = SourceRecord(key, value, timestamp, entry.headers, file.topic, 0, offset, highest)
        time = _event_time(node, record)
        highest = max(highest, time)
        yield Sample(entry.place, file.topic, key, value, timestamp, entry.headers, time)


def _converted(node: SourceNode, entry: Entry) -> tuple[Any, Any]:
    what = "key"
    try:
        key = value_of(node.key, entry.key, entry.is_text)
        what = "value"
        return key, value_of(node.value, entry.value, entry.is_text)
    except SerializationError as error:
        entry.place.refuse(f"the {what} is not what {node.name} reads (declared at {node.line}): {error}")


def _event_time(node: SourceNode, record: SourceRecord[Any, Any]) -> int:
    time = record.timestamp
    if node.timestamp is not None:
        with suppress(Exception):  # what the user's function raises is reported when the record is processed
            time = instant_ms(node.timestamp(record))
    return time if time >= 0 else record.timestamp
