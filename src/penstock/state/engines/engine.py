"""The interface of a lane's engine: ordered byte maps by name, written in one atomic batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from penstock.errors import LaneMovedError


class SpaceBatch(NamedTuple):
    """The writes to one space in a batch: ascending distinct keys, each with its value or None to delete it."""

    space: str
    keys: list[bytes]
    values: list[bytes | None]


class Expected(NamedTuple):
    """The value that a key must still have when a batch is written."""

    space: str
    key: bytes
    value: bytes | None

    def check(self, value: bytes | None) -> None:
        """Raise if the key has another value: then another process has written in the meantime."""
        if value != self.value:
            raise LaneMovedError("Another process has written to the lane's store since this one read it.")


class Engine(Protocol):
    """Ordered byte maps ("spaces") of one lane. Keys are any bytes, the empty key included, ordered as unsigned bytes.

    Reads see the state as of the last `write` through this engine, or as of `refresh`.
    """

    def get(self, space: str, key: bytes) -> bytes | None:
        """Return the value of a key."""

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of several keys, fastest if these are ascending."""

    def scan(self, space: str, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from `lower` (inclusive) to `upper` (exclusive) with their values, in byte order or backwards."""

    def count(self, space: str) -> int:
        """Return the approximate number of keys in a space."""

    def size(self, space: str) -> int:
        """Return the approximate size of a space in bytes."""

    def write(self, batch: Sequence[SpaceBatch], expected: Expected | None = None) -> None:
        """Apply all of the batch or none of it: none if what is `expected` has changed."""

    def snapshot(self) -> Engine:
        """Return a read-only copy of the current content, unaffected by later writes; the caller closes it."""

    def refresh(self) -> None:
        """Make the writes of other processes visible; open scans end."""

    def close(self) -> None:
        """Release files and locks; the engine cannot be used afterwards."""
