"""Where a lane is in its input: the origin of the record in hand, worked out only when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.records import RecordMetadata


class Position(Protocol):
    """The place of the record in hand."""

    def metadata(self) -> RecordMetadata | None:
        """Its topic, partition and offset; None between records."""


class Indexed(Protocol):
    """An Arrow column, as far as a position needs it."""

    def __getitem__(self, row: int) -> Any:
        """One value of it."""


class Nowhere:
    """Between records: a timer or a flush is running."""

    def metadata(self) -> RecordMetadata | None:
        """None."""
        return None


class At:
    """At one record."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: RecordMetadata) -> None:
        self._metadata = metadata

    def metadata(self) -> RecordMetadata | None:
        """Where it came from."""
        return self._metadata


class Rows:
    """In the middle of an epoch: `row` counts along the columns, and moving it is all that a record costs."""

    __slots__ = ("_columns", "row")

    def __init__(self, columns: Sequence[Indexed]) -> None:
        self._columns = columns
        self.row = 0

    def metadata(self) -> RecordMetadata | None:
        """Where the record of this row came from."""
        topic, partition, offset = (column[self.row].as_py() for column in self._columns)
        return RecordMetadata(topic, partition, offset)


NOWHERE = Nowhere()
