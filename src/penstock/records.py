"""The types that every room uses: records, headers, table changes, windowed keys.

Inside a lane a record is not an object: it is passed as the four positional arguments of `Process`, because creating
an object per operator would be too slow. `Record` is for user code, tests and tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
R = TypeVar("R")
KIn = TypeVar("KIn", contravariant=True)
VIn = TypeVar("VIn", contravariant=True)
ROut = TypeVar("ROut", covariant=True)

Headers = tuple[tuple[str, bytes | None], ...]
"""Record headers, in order, with repeated names allowed; immutable, so that branches can share them."""

Process = Callable[[Any, Any, int, Headers], None]
"""One step of a lane: `process(key, value, timestamp_ms, headers)`."""

Partition = tuple[str, int]
"""A partition of a topic: the topic's name and the partition's number."""

Ranges = Mapping[Partition, tuple[int, int]]
"""The offsets to read, by partition: the first, and the one after the last."""

NO_HEADERS: Headers = ()
NO_TIMESTAMP = -1
LAST_TIMESTAMP = (2**63 - 1) // 1000
"""The latest timestamp that is accepted: later ones, which Kafka stores, are in another unit."""
_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_OF_KAFKA = frozenset({"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"})


def is_name(text: str) -> bool:
    """Whether a topic, a store or an application may have this name: Kafka accepts it, and it is a plain file name.

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

    def __init__(self, key: K, value: V, timestamp: int, headers: Headers = NO_HEADERS) -> None:
        _set_key(self, key)  # what a frozen dataclass generates takes twice as long, for every record that a processor sees
        _set_value(self, value)
        _set_timestamp(self, timestamp)
        _set_headers(self, headers)

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


_set_key, _set_value, _set_timestamp, _set_headers = (Record.__dict__[name].__set__ for name in Record.__slots__)


@dataclass(frozen=True, slots=True)
class OnRecord(Generic[KIn, VIn, ROut]):
    """What `on_record` returns: a function of a record, marked as one."""

    function: Callable[[Record[KIn, VIn]], ROut]

    def __call__(self, record: Record[KIn, VIn]) -> ROut:
        """Call the function."""
        return self.function(record)


OfPair = Callable[[K, V], R] | OnRecord[K, V, R]
"""What most verbs of streams take: a function of key and value, or of the record."""

OfValue = OnRecord[K, V, R] | Callable[[V], R]
"""What verbs take that keep the key: a function of the value, or of the record."""


def on_record(function: Callable[[Record[K, V]], R]) -> OnRecord[K, V, R]:
    """Let a verb of a stream call `function(record)`, so that the function sees headers and timestamp too.

    For `filter`, `filter_not`, `select_key`, `map`, `map_values`, `flat_map`, `flat_map_values`, `peek`, `foreach`, `split` and
    `group_by` of a stream. What the function returns means what it means in that verb anyway. Headers are pairs, and a name may
    occur more than once: `dict(record.headers)` has the last of each.

    Example:
        >>> from penstock import StreamsBuilder, on_record
        >>> from penstock.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> orders = builder.stream("orders", value=str)
        >>> orders.filter(on_record(lambda record: dict(record.headers).get("tenant") == b"acme")).to("acme")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("orders").pipe("tea", headers=[("tenant", b"acme")])
        ...     driver.input("orders").pipe("coffee", headers=[("tenant", b"other")])
        ...     driver.output("acme").values()
        ['tea']
    """
    return OnRecord(function)


def wrapped(function: Callable[..., Any], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
    """Return `wrap(function)`; for a function of records, one that is marked too."""
    return OnRecord(wrap(function.function)) if isinstance(function, OnRecord) else wrap(function)


@dataclass(frozen=True, slots=True)
class SourceRecord(Record[K, V]):
    """A record as it was read: what a timestamp extractor sees.

    `partition_time` is the highest event time of earlier records in its partition, -1 if there are none.
    """

    topic: str = ""
    partition: int = 0
    offset: int = -1
    partition_time: int = NO_TIMESTAMP


class RecordMetadata(NamedTuple):
    """Where the current record was read from."""

    topic: str
    partition: int
    offset: int


class RecordContext(NamedTuple):
    """What a function that chooses a record's topic receives; `topic` is None for a record that a timer sends."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class SideOutput:
    """What an asynchronous mapper returns to send a value to a side output, in place of a result.

    It goes to the stream declared as `side_output(name)`, with the key, timestamp and headers of the record.
    """

    name: str
    value: Any


class Change(NamedTuple):
    """A change of a table's value: the new one, and the old one if a node downstream needs it.

    `is_latest` is false for an out-of-order update of a versioned table that did not become its newest version.
    """

    new: Any
    old: Any = None
    is_latest: bool = True


if TYPE_CHECKING:  # for type checkers: Python 3.10 has no generic named tuples

    class Windowed(NamedTuple, Generic[K]):
        """A key within a window, `start` inclusive; `end` exclusive for time windows and inclusive for sessions."""

        key: K
        start: int
        end: int

    class ValueAndTimestamp(NamedTuple, Generic[V]):
        """A table entry: its value and the value's event time."""

        value: V
        timestamp: int

    class VersionedRecord(NamedTuple, Generic[V]):
        """One version of a versioned store's key; `valid_to` is None for the newest."""

        value: V
        timestamp: int
        valid_to: int | None = None

else:

    class Windowed(NamedTuple):
        """A key within a window, `start` inclusive; `end` exclusive for time windows and inclusive for sessions."""

        key: Any
        start: int
        end: int

    class ValueAndTimestamp(NamedTuple):
        """A table entry: its value and the value's event time."""

        value: Any
        timestamp: int

    class VersionedRecord(NamedTuple):
        """One version of a versioned store's key; `valid_to` is None for the newest."""

        value: Any
        timestamp: int
        valid_to: int | None = None


class Delivered(NamedTuple):
    """A record that is delivered to another system, with key and value deserialized; a value of None is a deletion."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    partition: int
    offset: int


class ChangelogRows(NamedTuple):
    """Changelog rows of one partition, in order: a key's value, or None if the key was deleted."""

    topic: str
    partition: int
    keys: list[bytes]
    values: list[bytes | None]


class HostCursor(Protocol):
    """Where a lane is among the records of its epoch."""

    def cause(self) -> int:
        """The number of the current record in the epoch's order; -1 after the last, -2 while timers fire before the first."""

    def metadata(self) -> RecordMetadata | None:
        """Where the current record came from; None while a timer or a flush runs."""

    def at(self, origin: RecordMetadata | None) -> AbstractContextManager[None]:
        """While a record that was held back is processed, let `metadata` return its origin."""

    def at_timer(self, key: bytes, time: int) -> None:
        """Note that a timer fires, so that errors and dead letters can name it."""


class Results(dict[str, Any]):
    """The results of aggregates, of which some follow from more than that; `states` has what each follows from.

    To everyone but its aggregates and their store it is a dict of results.
    """

    __slots__ = ("states",)

    states: dict[str, Any]
