"""The records that were read and no epoch has taken yet, by offsets: what the next epoch may take."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import StateError
from penstock.records import Partition
from penstock.runtime.loop.dispatcher import Offer


class Backlog:
    """Tracks the records that epochs can take. `limits` are the offsets at which a bounded run ends."""

    def __init__(self, offsets: Mapping[Partition, int], limits: Mapping[Partition, int]) -> None:
        self._limits = limits
        self._read_to = dict(offsets)
        self.left: frozenset[Partition] = frozenset()
        """The partitions that have been read further than epochs have taken."""

    def is_at_its_end(self, offsets: Mapping[Partition, int]) -> bool:
        """Whether a bounded run has reached all of its limits."""
        return bool(self._limits) and all(offsets[partition] >= limit for partition, limit in self._limits.items())

    def begin_anew(self, offsets: Mapping[Partition, int]) -> None:
        """Start over with another input, which begins at these offsets."""
        self._read_to, self.left = dict(offsets), frozenset()

    def add(self, offsets: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
        """Add what was read, up to `ends`."""
        begins = self._read_to
        if any(begins[place] != offset and place not in self.left for place, offset in offsets.items()):
            raise StateError("The input does not continue from the committed offsets. Start again.")
        self._read_to = {place: max(offsets[place], min(end, self._limits.get(place, end))) for place, end in ends.items()}
        self.left = frozenset(place for place, end in self._read_to.items() if end > offsets[place])

    def offer(self, offsets: Mapping[Partition, int], waiting: frozenset[Partition], most: int | None) -> Offer:
        """Return what an epoch may take."""
        return Offer(offsets, self._read_to, waiting, most)

    def taken_to(self, offsets: Mapping[Partition, int]) -> None:
        """Remove what a committed epoch has taken, up to these offsets."""
        self.left = frozenset(place for place in self.left if self._read_to[place] > offsets[place])
