"""The nouns every room speaks: records, headers, table changes, windowed keys.

Inside a lane a record is not an object: it travels as the four positional arguments of `Process`, because building
an object per operator is what a Python hot path can least afford. `Record` is for user code and for the doors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")

Headers = tuple[tuple[str, bytes | None], ...]
"""Record headers, in order, repeated names allowed; immutable, so that branches can share them."""

Process = Callable[[Any, Any, int, Headers], None]
"""One step of a lane: `process(key, value, timestamp_ms, headers)`."""

NO_HEADERS: Headers = ()
NO_TIMESTAMP = -1
LAST_TIMESTAMP = (2**63 - 1) // 1000
"""Kafka takes any 64 bits for a timestamp; what is beyond this, Spark's microseconds cannot tell: it is in another unit."""
_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_OF_KAFKA = frozenset({"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"})


def is_name(text: str) -> bool:
    """Whether a topic, a store or an application can be called so: what Kafka takes, and a file system takes for a plain name.

    Example:
        >>> is_name("orders-2.eu"), is_name("../orders"), is_name("__consumer_offsets")
        (True, False, False)
    """
    return bool(_NAME.fullmatch(text)) and text not in _OF_KAFKA


@dataclass(frozen=True, slots=True)
class Record(Generic[K, V]):
    """A record as a `Processor` sees it."""

    key: K
    value: V
    timestamp: int
    headers: Headers = NO_HEADERS

    def with_key(self, key: K2) -> Record[K2, V]:
        """This record under another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """This record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        """This record at another event time (epoch milliseconds)."""
        return replace(self, timestamp=timestamp)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        """This record with other headers; headers are a tuple of `(name, bytes or None)` pairs."""
        return replace(self, headers=tuple(headers))


@dataclass(frozen=True, slots=True)
class SourceRecord(Record[K, V]):
    """A record as it was read: what a timestamp extractor sees.

    `partition_time` is the highest event time its partition has shown before it, -1 if it is the first.
    """

    topic: str = ""
    partition: int = 0
    offset: int = -1
    partition_time: int = NO_TIMESTAMP


class RecordMetadata(NamedTuple):
    """Where the record in hand was read from."""

    topic: str
    partition: int
    offset: int


class RecordContext(NamedTuple):
    """What a function that chooses a record's topic may look at; topic is None for what a timer sends."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class SideOutput:
    """What an asynchronous mapper returns to send a value aside, in place of a result.

    It goes to the stream that was declared as `side_output(name)`, with the key, timestamp and headers of the record.
    """

    name: str
    value: Any


class Change(NamedTuple):
    """What a table's edge carries: the new value, the old one where somebody downstream asked for it.

    `is_latest` is false when a versioned table took an out-of-order update that did not become its newest version.
    """

    new: Any
    old: Any = None
    is_latest: bool = True


class Windowed(NamedTuple):
    """A key within a window, `start` inclusive; `end` exclusive for time windows and inclusive for sessions."""

    key: Any
    start: int
    end: int


class ValueAndTimestamp(NamedTuple):
    """A table entry: its value and the event time that value carries."""

    value: Any
    timestamp: int


class VersionedRecord(NamedTuple):
    """One version of a versioned store's key; `valid_to` is None for the newest."""

    value: Any
    timestamp: int
    valid_to: int | None = None
