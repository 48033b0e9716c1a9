"""What leaves a lane: one row per record for a topic or an exchange, in the order it was sent; and what is told of the rest."""

from __future__ import annotations

from collections.abc import Callable
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
    """A record on its way out, as bytes.

    `cause` is the epoch's record that it follows from, by its place among those that were walked; see `lanes.cursor` for others.
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
    """What a lane has sent, and how many records it has skipped, by node and reason.

    `commit_requested` is a processor's wish, which the host tells the driver.
    """

    __slots__ = ("_rows", "commit_requested", "cursor", "dropped", "send")

    def __init__(self, cursor: Cursor) -> None:
        self.cursor: Cursor = cursor
        self.dropped: dict[tuple[str, str], int] = {}
        self.commit_requested: bool = False
        self._rows: list[Row] = []
        self.send: Callable[[Row], None] = self._rows.append  # at every row sent: no call in between

    def send_dead_letter(self, row: Row) -> None:
        """Let a record that failed leave with what is sent."""
        self.send(row._replace(cause=self.cursor.row))

    def drop(self, node: str, reason: str) -> None:
        """Count a record that semantics told a node to skip."""
        self.dropped[node, reason] = self.dropped.get((node, reason), 0) + 1

    def drain(self) -> list[Row]:
        """Take out the rows sent since the last call."""
        rows = self._rows.copy()
        self._rows.clear()
        return rows
