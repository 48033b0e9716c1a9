"""The first step of a lane: deserializes records and extracts their event time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import FAILURES, ProcessingError, RegistryError, SerializationError, text_of
from penstock.lanes.failures import Failures
from penstock.lanes.position import RawRecord
from penstock.records import LAST_TIMESTAMP, NO_TIMESTAMP, Headers, Process, RecordMetadata, SourceRecord
from penstock.timing import instant_ms
from penstock.topology.nodes import SourceNode


class Arrival(NamedTuple):
    """A record that is ready to enter the lane."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers


class Intake:
    """Where the records of one source node enter the lane."""

    __slots__ = ("key", "node", "process", "value")

    def __init__(self, node: SourceNode, process: Process) -> None:
        self.node: SourceNode = node
        self.process: Process = process
        key, value = node.key, node.value
        if not node.internal:
            topics = ",".join(node.topics) if node.pattern is None else node.pattern.pattern
            key, value = key.for_topic(topics, is_key=True), value.for_topic(topics, is_key=False)
        self.key: Callable[[bytes], Any] = key.deserialize
        self.value: Callable[[bytes], Any] = value.deserialize

    def decode(self, failures: Failures, origin: RecordMetadata, raw: RawRecord, partition_time: int) -> Arrival | None:
        """Decode a raw record and extract its event time; return None if the extractor or the error handler drops it."""
        node, timestamp, headers = self.node, raw.timestamp, raw.headers
        if node.timestamp is None and not 0 <= timestamp <= LAST_TIMESTAMP:
            failures.deserialization(node, without_time(node, timestamp, origin), raw, origin)
            return None
        try:
            key, value = self.values(origin, raw.key, raw.value)
        except ProcessingError as error:
            failures.deserialization(node, error, raw, origin)
            return None
        if node.timestamp is not None:
            try:
                record = SourceRecord(key, value, timestamp, headers, *origin, partition_time)
                timestamp = instant_ms(node.timestamp(record))
            except FAILURES as error:
                raise ProcessingError(
                    f"The timestamp extractor of {node.name} failed on the record from {_place(origin)}: "
                    f"{type(error).__name__}: {text_of(error)}\n  the source was declared at {node.line}"
                ) from error
            if timestamp < 0:
                failures.untimed(node, timestamp, origin)
                return None
        return Arrival(key, value, timestamp, headers)

    @property
    def tells_watermark(self) -> bool:
        """Whether the watermark comes from the records themselves."""
        return self.node.watermark is not None and self.node.watermark.function is not None

    def told_watermark(self, arrival: Arrival, origin: RecordMetadata, partition_time: int) -> int:
        """Return the watermark that a record carries; -1 if it has none."""
        node = self.node
        if node.watermark is None or node.watermark.function is None:
            return NO_TIMESTAMP
        record = SourceRecord(*arrival, *origin, partition_time)
        try:
            watermark = node.watermark.function(record)
            return NO_TIMESTAMP if watermark is None else instant_ms(watermark)
        except FAILURES as error:
            raise ProcessingError(
                f"The watermark function of {node.name} failed on the record from {_place(origin)}: "
                f"{type(error).__name__}: {text_of(error)}\n  the source was declared at {node.line}"
            ) from error

    def values(self, origin: RecordMetadata, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
        """Deserialize key and value of a raw record."""
        node = self.node
        try:
            return None if key is None else self.key(key), None if value is None else self.value(value)
        except RegistryError:
            raise
        except FAILURES as error:
            raise ProcessingError(
                f"{node.name} cannot read the record from {_place(origin)}: {text_of(error)}\n"
                f"  its serdes are key={node.key!r}, value={node.value!r}, declared at {node.line}"
            ) from error


def without_time(node: SourceNode, timestamp: int, origin: RecordMetadata) -> ProcessingError:
    """Return the error for a record with an invalid timestamp, at a source without a timestamp extractor."""
    error = ProcessingError(
        f"The record from {_place(origin)} has the invalid timestamp {timestamp}. "
        f"Give {node.name} a timestamp= function that handles such records ({node.line})."
    )
    error.__cause__ = SerializationError(
        f"Invalid timestamp {timestamp}: expected milliseconds since 1970, from 0 to {LAST_TIMESTAMP}."
    )
    return error


def _place(origin: RecordMetadata) -> str:
    return f"{origin.topic}-{origin.partition} at offset {origin.offset}"
