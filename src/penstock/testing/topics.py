"""The two ends of a topology under test: topics to pipe records into, topics to read results from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from penstock.errors import TopologyError
from penstock.lanes.outbox import Row
from penstock.records import NO_HEADERS, Headers, Record
from penstock.serdes import Serde, serde_of
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.serde import connected
from penstock.testing.display import records_html
from penstock.timing import Duration, Instant, duration_ms, instant_ms

K = TypeVar("K")
V = TypeVar("V")


class Pipe(Protocol):
    """What an input topic needs of the driver."""

    def pipe_raw(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Process one raw record."""


class InputTopic(Generic[K, V]):
    """A topic that the topology reads."""

    def __init__(self, pipe: Pipe, topic: str, key: Serde[K], value: Serde[V], start_ms: int, advance_ms: int) -> None:
        self._pipe = pipe
        self._topic = topic
        self._key = key
        self._value = value
        self._now = start_ms
        self._advance_ms = advance_ms

    def advance_time(self, advance: Duration) -> None:
        """Move the time for records without a timestamp."""
        self._now += duration_ms(advance)

    def pipe(
        self, value: V | None, *, key: K | None = None, timestamp: Instant | None = None, headers: Headers = NO_HEADERS
    ) -> None:
        """Pipe one record and process it with everything it causes."""
        if timestamp is None:
            at = self._now
            self._now += self._advance_ms
        else:
            at = instant_ms(timestamp)
        if at < 0:
            raise ValueError(f"Invalid record timestamp {at}: it must be 0 or later.")
        key_bytes = None if key is None else self._key.serialize(key)
        value_bytes = None if value is None else self._value.serialize(value)
        self._pipe.pipe_raw(self._topic, key_bytes, value_bytes, at, tuple(headers))

    def pipe_record(self, record: Record[K | None, V | None] | Record[K, V]) -> None:
        """Pipe one record as it is."""
        self.pipe(record.value, key=record.key, timestamp=record.timestamp, headers=record.headers)

    def pipe_values(self, values: Iterable[V | None], *, start: Instant | None = None, advance: Duration = 0) -> None:
        """Pipe values without keys, beginning at `start`, `advance` apart."""
        self.pipe_pairs(((None, value) for value in values), start=start, advance=advance)

    def pipe_pairs(
        self, pairs: Iterable[tuple[K | None, V | None]], *, start: Instant | None = None, advance: Duration = 0
    ) -> None:
        """Pipe `(key, value)` pairs, beginning at `start`, `advance` apart."""
        at = None if start is None and not advance else self._now if start is None else instant_ms(start)
        for key, value in pairs:
            self.pipe(value, key=key, timestamp=at)
            if at is not None:
                at += duration_ms(advance)

    def pipe_records(self, records: Iterable[Record[K | None, V | None] | Record[K, V]]) -> None:
        """Pipe records as they are."""
        for record in records:
            self.pipe_record(record)


class OutputTopic(Generic[K, V]):
    """A topic that the topology writes; reading removes records."""

    def __init__(self, rows: deque[Row], key: Serde[K], value: Serde[V]) -> None:
        self._rows = rows
        self._key = key.deserialize
        self._value = value.deserialize

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_empty(self) -> bool:
        """Whether no record is left to read."""
        return not self._rows

    def html(self, caption: str = "") -> str:
        """A table of the records that are left, which stay; notebooks show it by themselves."""
        return records_html(self._rows, self._key, self._value, caption)

    _repr_html_ = html

    def read(self) -> Record[K, V]:
        """The next record; raises if there is none."""
        if not self._rows:
            raise LookupError("The topic has no more records. Check is_empty first.")
        row = self._rows.popleft()
        key: Any = None if row.key is None else self._key(row.key)
        value: Any = None if row.value is None else self._value(row.value)
        return Record(key, value, row.timestamp, row.headers)

    def read_value(self) -> V:
        """The next record's value."""
        return self.read().value

    def read_pair(self) -> tuple[K, V]:
        """The next record's key and value."""
        record = self.read()
        return record.key, record.value

    def records(self) -> list[Record[K, V]]:
        """All records that are left."""
        return [self.read() for _ in range(len(self._rows))]

    def values(self) -> list[V]:
        """The values of all records that are left."""
        return [record.value for record in self.records()]

    def pairs(self) -> list[tuple[K, V]]:
        """Keys and values of all records that are left."""
        return [(record.key, record.value) for record in self.records()]

    def table(self) -> dict[K, V]:
        """The last value of each key among the records that are left; a null value leaves no entry."""
        table: dict[K, V] = {}
        for key, value in self.pairs():
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
        return table


def serde_given(given: Any, known: Serde[Any] | None) -> Serde[Any]:
    """Return the serde that a test has given, or the one that the topology knows."""
    if given is not None:
        return serde_of(given)
    if known is None:
        raise TopologyError("Give key= and value=: the topology does not know the serdes of this topic.")
    return known


def of_topic(registry: Registry, topic: str, key: Serde[Any], value: Serde[Any]) -> tuple[Serde[Any], Serde[Any]]:
    """Return the serdes of a topic's keys and values, connected to the registry."""
    key, value = connected(key, registry), connected(value, registry)
    return key.for_topic(topic, is_key=True), value.for_topic(topic, is_key=False)
