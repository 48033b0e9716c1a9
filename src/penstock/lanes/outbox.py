"""The output of a lane: one row per record for a topic or an exchange, in the order sent; and counts of dropped records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from penstock.lanes.cursor import Cursor
from penstock.records import Headers


class RowKind(Enum):
    """Where a row goes."""

    SINK = "a topic"
    EXCHANGE = "the next stage, instead of Kafka"
    DEAD_LETTER = "a topic of records that failed"


class Row(NamedTuple):
    """An output record, as bytes.

    `cause` is the record of the epoch that caused it, by its number in the order of processing; see `lanes.cursor` for others.
    Without a `partition`, the producer chooses that of the key; for a negative one, that of the key without as many of its last
    bytes.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    partition: int | None = None
    kind: RowKind = RowKind.SINK
    cause: int = -1

    @property
    def is_exchanged(self) -> bool:
        """Whether it goes to the next stage instead of Kafka."""
        return self.kind is RowKind.EXCHANGE


class Outbox:
    """The rows that a lane has sent, and how many records it has dropped, by node and reason.

    `commit_requested` is set when a processor requests a commit; the host passes it to the driver.
    """

    __slots__ = ("_rows", "commit_requested", "cursor", "dropped", "send")

    def __init__(self, cursor: Cursor) -> None:
        self.cursor: Cursor = cursor
        self.dropped: dict[tuple[str, str], int] = {}
        self.commit_requested: bool = False
        self._rows: list[Row] = []
        self.send: Callable[[Row], None] = self._rows.append  # called for every row: no call in between

    def send_all(self, rows: Iterable[Row]) -> None:
        """Send several rows."""
        self._rows.extend(rows)

    def send_dead_letter(self, row: Row) -> None:
        """Send a dead letter."""
        self.send(row._replace(cause=self.cursor.row))

    def drop(self, node: str, reason: str, count: int = 1) -> None:
        """Count records that a node dropped."""
        if count:
            self.dropped[node, reason] = self.dropped.get((node, reason), 0) + count

    def drain(self) -> list[Row]:
        """Return and remove the rows sent since the last call."""
        rows = self._rows.copy()
        self._rows.clear()
        return rows
