"""What the barrier asks of whoever publishes an epoch, and the offsets it hands over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The next record to read of a source partition, and the text that is committed with it."""

    topic: str
    partition: int
    offset: int
    metadata: str


class Publisher(Protocol):
    """Publishes one epoch at a time; every failure is a `PenstockError`."""

    def begin(self) -> None:
        """Open the epoch's transaction."""

    def produce(self, rows: Any) -> None:
        """Hand over a batch of rows; returning says nothing about their delivery."""

    def send_offsets(self, offsets: Sequence[SourceOffset]) -> None:
        """Make the offsets part of the transaction."""

    def commit(self) -> bool:
        """Commit; False if the outcome is not known yet, in which case only `commit` may be called again.

        It waits a while before it answers False. What it raises is final: a transaction that can be aborted has been.
        """

    def abort(self) -> None:
        """Give the transaction up; never called once `commit` has been."""
