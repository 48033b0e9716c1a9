"""What a lane asks of the engine below it: ordered byte maps by name, written in one atomic batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class SpaceBatch(NamedTuple):
    """What one space gets in a batch: keys, ascending and distinct, each with its value or None to delete it."""

    space: str
    keys: list[bytes]
    values: list[bytes | None]


class Engine(Protocol):
    """Ordered byte maps ("spaces") of one lane. Keys are any bytes, the empty ones included, ordered as unsigned bytes.

    Reads see the state as of the last `write` through this engine, or as of `refresh`.
    """

    def get(self, space: str, key: bytes) -> bytes | None:
        """The value of a key."""

    def scan(self, space: str, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `lower` (inclusive) to `upper` (exclusive) with their values, in byte order or backwards."""

    def count(self, space: str) -> int:
        """About how many keys a space has."""

    def size(self, space: str) -> int:
        """About how many bytes a space takes."""

    def write(self, batch: Sequence[SpaceBatch]) -> None:
        """Apply all of the batch or none of it."""

    def snapshot(self) -> Engine:
        """What is there now, to read, whatever is written later; to be closed by whoever takes it."""

    def refresh(self) -> None:
        """See what other processes have written since; open scans end."""

    def close(self) -> None:
        """Let go of files and locks; the engine cannot be used afterwards."""
