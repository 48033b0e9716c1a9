"""Where a lane is in its input: the origin of the record in hand, worked out only when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from penstock.records import NO_HEADERS, NO_TIMESTAMP, Headers, RecordMetadata


class RawRecord(NamedTuple):
    """A record as it came in, before its bytes were read."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class Position(Protocol):
    """The place of the record in hand."""

    def metadata(self) -> RecordMetadata | None:
        """Its topic, partition and offset; None between records."""

    def raw(self) -> RawRecord | None:
        """The record as it came in; None between records."""

    def timestamp(self) -> int:
        """When the record was, as far as the position knows; -1 between records."""

    def read_from(self) -> str | None:
        """The topic or the exchange that `raw` was read from; None between records, and where it is not known any more."""


class Indexed(Protocol):
    """An Arrow column, as far as a position needs it."""

    def __getitem__(self, row: int) -> Any:
        """One value of it."""


class Nowhere:
    """Between records: a timer or a flush is running."""

    def metadata(self) -> RecordMetadata | None:
        """None."""
        return None

    def raw(self) -> RawRecord | None:
        """None."""
        return None

    def timestamp(self) -> int:
        """No time."""
        return NO_TIMESTAMP

    def read_from(self) -> str | None:
        """None."""
        return None


class At:
    """At one record."""

    __slots__ = ("_metadata", "_raw")

    def __init__(self, metadata: RecordMetadata, raw: RawRecord | None = None) -> None:
        self._metadata = metadata
        self._raw = raw

    def metadata(self) -> RecordMetadata | None:
        """Where it came from."""
        return self._metadata

    def raw(self) -> RawRecord | None:
        """What came in, where it is still known."""
        return self._raw

    def timestamp(self) -> int:
        """The time it was sent with."""
        return NO_TIMESTAMP if self._raw is None else self._raw.timestamp

    def read_from(self) -> str | None:
        """Its topic, where the record is still known."""
        return None if self._raw is None else self._metadata.topic


class AtTimer:
    """At a timer, which has a key and a time but came from nowhere."""

    __slots__ = ("_key", "_time")

    def __init__(self, key: bytes, time: int) -> None:
        self._key = key
        self._time = time

    def metadata(self) -> RecordMetadata | None:
        """None."""
        return None

    def raw(self) -> RawRecord | None:
        """What stands for it where it fails: its key without a value, at its time."""
        return RawRecord(self._key, None, self._time, NO_HEADERS)

    def timestamp(self) -> int:
        """When it was due."""
        return self._time

    def read_from(self) -> str | None:
        """None."""
        return None


class Rows:
    """In the middle of an epoch: `row` counts along the columns, and moving it is all that a record costs.

    `exchanges` are by the code of the source that reads them, None for sources that read topics.
    """

    __slots__ = ("_columns", "_exchanges", "_origins", "row")

    def __init__(
        self, columns: Sequence[Indexed], origins: Sequence[tuple[str, int]], exchanges: Sequence[str | None] = ()
    ) -> None:
        self._columns = columns
        self._origins = origins
        self._exchanges = exchanges
        self.row: int = 0

    def metadata(self) -> RecordMetadata | None:
        """Where the record of this row came from; None if it was sent when a cache was flushed or a timer was due."""
        origin, offset = (column[self.row].as_py() for column in self._columns[1:3])
        if origin < 0:
            return None
        topic, partition = self._origins[origin]
        return RecordMetadata(topic, partition, offset)

    def raw(self) -> RawRecord | None:
        """The record of this row as it came in."""
        key, value, timestamp, headers = (column[self.row].as_py() for column in self._columns[3:])
        return RawRecord(key, value, timestamp, headers_of(headers))

    def timestamp(self) -> int:
        """The event time of this row."""
        time: int = self._columns[5][self.row].as_py()
        return time

    def read_from(self) -> str | None:
        """The exchange that the record came through; else the topic it began in."""
        metadata = self.metadata()
        return self._exchanges[self._columns[0][self.row].as_py()] or (None if metadata is None else metadata.topic)


def headers_of(row: list[dict[str, Any]] | None) -> Headers:
    """Headers from a row of an Arrow column."""
    return tuple((item["name"], item["value"]) for item in row) if row else NO_HEADERS


NOWHERE = Nowhere()
