"""Where a lane is in its epoch; the origin of the record in hand is worked out only when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from penstock.lanes.position import NOWHERE, At, AtTimer, Position, RawRecord, headers_of
from penstock.records import RecordMetadata

BEFORE_RECORDS = -2
"""What causes rows that are sent before an epoch's first record: the wall clock, or a watermark."""

AFTER_RECORDS = -1
"""What causes rows that are sent when all records are done: caches that emit."""


class Cursor:
    """Which of an epoch's records is in hand, and where it came from.

    `row` counts along the records in the order of processing: it is what causes the rows that are sent meanwhile.
    """

    __slots__ = ("position", "row")

    def __init__(self) -> None:
        self.position: Position = NOWHERE
        self.row: int = BEFORE_RECORDS

    def cause(self) -> int:
        """What causes rows that are sent now."""
        return self.row

    def metadata(self) -> RecordMetadata | None:
        """Where the record in hand came from."""
        return self.position.metadata()

    @contextmanager
    def at(self, origin: RecordMetadata | None) -> Iterator[None]:
        """Be where a record that was held back came from."""
        before = self.position
        self.position = NOWHERE if origin is None else At(origin)
        try:
            yield
        finally:
            self.position = before

    def at_timer(self, key: bytes, time: int) -> None:
        """Be at a timer."""
        self.position = AtTimer(key, time)

    @contextmanager
    def between_records(self) -> Iterator[None]:
        """Be back here when the block ends."""
        before = self.position, self.row
        try:
            yield
        finally:
            self.position, self.row = before


class Indexed(Protocol):
    """An Arrow column, as far as a position needs it."""

    def __getitem__(self, row: int) -> Any:
        """One value of it."""


class CursorPosition:
    """In the middle of an epoch: at the cursor's row of some columns, so that moving the cursor is all that a record costs.

    `exchanges` are by the code of the source that reads them, None for sources that read topics.
    """

    __slots__ = ("_columns", "_cursor", "_exchanges", "_origins")

    def __init__(
        self, cursor: Cursor, columns: Sequence[Indexed], origins: Sequence[tuple[str, int]], exchanges: Sequence[str | None]
    ) -> None:
        self._cursor = cursor
        self._columns = columns
        self._origins = origins
        self._exchanges = exchanges

    def metadata(self) -> RecordMetadata | None:
        """Where the record of this row came from; None if it was sent when a cache was flushed or a timer was due."""
        origin, offset = (column[self._cursor.row].as_py() for column in self._columns[1:3])
        if origin < 0:
            return None
        topic, partition = self._origins[origin]
        return RecordMetadata(topic, partition, offset)

    def raw(self) -> RawRecord | None:
        """The record of this row as it came in."""
        key, value, timestamp, headers = (column[self._cursor.row].as_py() for column in self._columns[3:])
        return RawRecord(key, value, timestamp, headers_of(headers))

    def timestamp(self) -> int:
        """The event time of this row."""
        time: int = self._columns[5][self._cursor.row].as_py()
        return time

    def read_from(self) -> str | None:
        """The exchange that the record came through; else the topic it began in."""
        metadata = self.metadata()
        return self._exchanges[self._columns[0][self._cursor.row].as_py()] or (None if metadata is None else metadata.topic)
