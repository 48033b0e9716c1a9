"""What leaves a lane: one row per record for a topic or an exchange, in the order it was sent."""

from __future__ import annotations

from typing import NamedTuple

from penstock.records import Headers


class Row(NamedTuple):
    """A record on its way out, as bytes; `exchange` rows go to the next stage instead of Kafka.

    `cause` is the epoch's record that it follows from, by its place among those that were walked; see `lanes.lane` for others.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    partition: int | None = None
    exchange: bool = False
    dead_letter: bool = False
    cause: int = -1
