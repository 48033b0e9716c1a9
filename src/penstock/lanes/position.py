"""Where the current record came from: a topic, a timer, or nowhere."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from penstock.records import NO_HEADERS, NO_TIMESTAMP, Headers, RecordMetadata


class RawRecord(NamedTuple):
    """A record as it was read, before it is deserialized."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class Position(Protocol):
    """The origin of the current record."""

    def metadata(self) -> RecordMetadata | None:
        """Return its topic, partition and offset; None between records."""

    def raw(self) -> RawRecord | None:
        """Return the record as it was read; None between records."""

    def timestamp(self) -> int:
        """Return the record's timestamp, if known; -1 otherwise, and between records."""

    def read_from(self) -> str | None:
        """Return the topic or exchange that `raw` was read from; None between records, and if it is no longer known."""


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
        """Return where it came from."""
        return self._metadata

    def raw(self) -> RawRecord | None:
        """Return the record as it was read, if still known."""
        return self._raw

    def timestamp(self) -> int:
        """Return its timestamp, if still known."""
        return NO_TIMESTAMP if self._raw is None else self._raw.timestamp

    def read_from(self) -> str | None:
        """Return its topic, if the record is still known."""
        return None if self._raw is None else self._metadata.topic


class AtTimer:
    """At a timer, which has a key and a time but no origin."""

    __slots__ = ("_key", "_time")

    def __init__(self, key: bytes, time: int) -> None:
        self._key = key
        self._time = time

    def metadata(self) -> RecordMetadata | None:
        """None."""
        return None

    def raw(self) -> RawRecord | None:
        """Return what represents the timer if it fails: its key without a value, at its time."""
        return RawRecord(self._key, None, self._time, NO_HEADERS)

    def timestamp(self) -> int:
        """Return when it was due."""
        return self._time

    def read_from(self) -> str | None:
        """None."""
        return None


def headers_of(row: list[dict[str, Any]] | None) -> Headers:
    """Return the headers in a row of an Arrow column."""
    return tuple((item["name"], item["value"]) for item in row) if row else NO_HEADERS


NOWHERE = Nowhere()
