"""Where a lane is in its input: the origin of the record in hand, worked out only when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.records import RecordMetadata


class Position(Protocol):
    """The place of the record in hand."""

    def metadata(self) -> RecordMetadata | None:
        """Its topic, partition and offset; None between records."""


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

    __slots__ = ("_offsets", "_partitions", "_topics", "row")

    def __init__(self, topics: Sequence[str], partitions: Sequence[int], offsets: Sequence[int]) -> None:
        self._topics = topics
        self._partitions = partitions
        self._offsets = offsets
        self.row = 0

    def metadata(self) -> RecordMetadata | None:
        """Where the record of this row came from."""
        return RecordMetadata(self._topics[self.row], self._partitions[self.row], self._offsets[self.row])


NOWHERE = Nowhere()
