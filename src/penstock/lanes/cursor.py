"""Where a lane is in its epoch; the origin of the current record is determined only on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from penstock.lanes.position import NOWHERE, At, AtTimer, Position, RawRecord, headers_of
from penstock.records import RecordMetadata

BEFORE_RECORDS = -2
"""The cause of rows sent before the first record of an epoch, by the wall clock or a watermark."""

AFTER_RECORDS = -1
"""The cause of rows sent after the last record, when caches emit."""


class Cursor:
    """The current record of an epoch, and where it came from.

    `row` is its number in the order of processing, and the cause of the rows sent while it is processed.
    """

    __slots__ = ("position", "row")

    def __init__(self) -> None:
        self.position: Position = NOWHERE
        self.row: int = BEFORE_RECORDS

    def cause(self) -> int:
        """Return the cause of rows sent now."""
        return self.row

    def metadata(self) -> RecordMetadata | None:
        """Return where the current record came from."""
        return self.position.metadata()

    @contextmanager
    def at(self, origin: RecordMetadata | None) -> Iterator[None]:
        """Use the origin of a record that was held back, during the block."""
        before = self.position
        self.position = NOWHERE if origin is None else At(origin)
        try:
            yield
        finally:
            self.position = before

    def at_timer(self, key: bytes, time: int) -> None:
        """Set the position to a timer."""
        self.position = AtTimer(key, time)

    @contextmanager
    def between_records(self) -> Iterator[None]:
        """Restore the current position when the block ends."""
        before = self.position, self.row
        try:
            yield
        finally:
            self.position, self.row = before


class Indexed(Protocol):
    """The part of an Arrow column's interface that a position uses."""

    def __getitem__(self, row: int) -> Any:
        """Return one value."""


class CursorPosition:
    """The position at the cursor's row of the epoch's columns. One object serves all records: only the cursor moves.

    `exchanges` has the exchange that each source reads, by its code; None for sources that read topics.
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
        """Return where the record of this row came from; None if a flushed cache or a timer sent it."""
        origin, offset = (column[self._cursor.row].as_py() for column in self._columns[1:3])
        if origin < 0:
            return None
        topic, partition = self._origins[origin]
        return RecordMetadata(topic, partition, offset)

    def raw(self) -> RawRecord | None:
        """Return the record of this row as it was read."""
        key, value, timestamp, headers = (column[self._cursor.row].as_py() for column in self._columns[3:])
        return RawRecord(key, value, timestamp, headers_of(headers))

    def timestamp(self) -> int:
        """Return the event time of this row."""
        time: int = self._columns[5][self._cursor.row].as_py()
        return time

    def read_from(self) -> str | None:
        """Return the exchange that the record came through, otherwise its topic."""
        metadata = self.metadata()
        return self._exchanges[self._columns[0][self._cursor.row].as_py()] or (None if metadata is None else metadata.topic)
