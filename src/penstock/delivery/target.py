"""`Target`: where the records of a topic are delivered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from penstock.records import Delivered

Offsets = Mapping[int, int]
"""The next offset of each partition."""


class Target(ABC):
    """A system that receives each record of a topic exactly once, because it stores offsets together with the records.

    One thread calls it. If the process dies, the next one continues where `open` says.
    """

    @abstractmethod
    def open(self, name: str) -> Offsets:
        """Connect; return the next offset of each partition of which it has records. `name` identifies the delivery."""

    @abstractmethod
    def write(self, rows: Sequence[Delivered], begins: Offsets, ends: Offsets) -> None:
        """Store the rows and the offsets `ends`: all of it, or nothing.

        Raises `FencedError` if the stored offsets are no longer `begins`: then another instance delivers the same topic.
        """

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""

    def is_temporary(self, error: Exception) -> bool:
        """Whether it may be enough to wait, open the target again and retry."""
        return isinstance(error, OSError)
