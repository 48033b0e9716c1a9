"""The port through which the committer publishes an epoch, and the offsets it hands over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The offset of the next record to read from a source partition, and the metadata to commit with it."""

    topic: str
    partition: int
    offset: int
    metadata: str


class Publisher(Protocol):
    """Publishes one epoch at a time; every failure is a `PenstockError`."""

    def begin(self) -> None:
        """Open the epoch's transaction."""

    def produce(self, rows: Any) -> None:
        """Hand over a batch of rows; they need not be delivered when this returns."""

    def send_offsets(self, offsets: Sequence[SourceOffset]) -> None:
        """Add the offsets to the transaction."""

    def commit(self) -> bool:
        """Commit; return False if the outcome is not known yet, after which only `commit` may be called.

        It waits a while before it returns False. An error is final: a transaction that can be aborted has been aborted.
        """

    def abort(self) -> None:
        """Abort the transaction; never called after `commit`."""
