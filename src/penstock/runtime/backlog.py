"""What Spark has read and no epoch has taken yet, by offsets: which records the next epoch may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import StateError
from penstock.records import Partition
from penstock.runtime.attempts import Input


class Backlog:
    """Follows what there is to take. `limits` are the offsets before which a bounded run ends, if it is one."""

    def __init__(self, offsets: Mapping[Partition, int], limits: Mapping[Partition, int]) -> None:
        self._limits = limits
        self._read_to = dict(offsets)
        self.left: frozenset[Partition] = frozenset()
        """The partitions of which Spark has read more than epochs have taken."""

    def is_at_its_end(self, offsets: Mapping[Partition, int]) -> bool:
        """Whether every bound of the run has been reached."""
        return bool(self._limits) and all(offsets[partition] >= limit for partition, limit in self._limits.items())

    def begin_anew(self, offsets: Mapping[Partition, int]) -> None:
        """Nothing is left: another stream begins at these offsets."""
        self._read_to, self.left = dict(offsets), frozenset()

    def add(self, offsets: Mapping[Partition, int], ends: Mapping[Partition, int]) -> bool:
        """Spark has read up to `ends`; whether its micro-batch has exactly what there is to take behind `offsets`."""
        begins = self._read_to
        if any(begins[place] != offset and place not in self.left for place, offset in offsets.items()):
            raise StateError("Spark goes on from other offsets than those that are committed: start again")
        self._read_to = {place: max(offsets[place], min(end, self._limits.get(place, end))) for place, end in ends.items()}
        is_all = self._read_to == ends and not self.left
        self.left = frozenset(place for place, end in self._read_to.items() if end > offsets[place])
        return is_all

    def offer(
        self, frame: Any | None, offsets: Mapping[Partition, int], waiting: frozenset[Partition], most: int | None
    ) -> Input:
        """What an epoch may take; `frame` has all of it, if there is one."""
        return Input(frame, offsets, self._read_to, waiting, most)

    def taken_to(self, offsets: Mapping[Partition, int]) -> None:
        """An epoch has come up to these offsets."""
        self.left = frozenset(place for place in self.left if self._read_to[place] > offsets[place])
