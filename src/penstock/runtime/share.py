"""What an epoch takes of what Spark has read: a part of it, if that is much, and nothing of partitions that have to wait.

Spark goes on reading every partition, and whatever an epoch leaves is read once more, by offsets, when its turn has come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from penstock.records import Partition


class Room(NamedTuple):
    """What fits into an epoch: so many records, and of those that weigh something so many bytes.

    `weights` are what a record of a partition is expected to weigh, one list for each thing that is weighed.
    """

    records: int
    size: int
    weights: tuple[Callable[[Partition], float], ...] = ()


def take(
    offsets: Mapping[Partition, int], read_to: Mapping[Partition, int], waiting: Collection[Partition], room: Room
) -> dict[Partition, int]:
    """How far each partition has come after an epoch that goes on from `offsets` and may go to `read_to`.

    All partitions give the same part of what they have, so that they come to their ends together. There is always room for one
    record.

    Example:
        >>> fast, slow = ("in", 0), ("in", 1)
        >>> take({fast: 10, slow: 10}, {fast: 90, slow: 20}, [fast], Room(50, 0))
        {('in', 0): 10, ('in', 1): 20}
        >>> take({fast: 10, slow: 10}, {fast: 90, slow: 20}, [], Room(45, 0))
        {('in', 0): 50, ('in', 1): 15}
    """
    there = {place: read_to[place] - offset for place, offset in offsets.items() if place not in waiting}
    count = sum(there.values())
    part = min([1.0, *_parts(there, count, room)])
    taken = dict(offsets)
    if part == 1:
        return taken | {place: read_to[place] for place in there}
    shares = {place: number * part for place, number in there.items()}
    taken |= {place: offsets[place] + int(share) for place, share in shares.items()}
    left = max(1, int(count * part)) - sum(int(share) for share in shares.values())
    for place in sorted(shares, key=lambda place: int(shares[place]) - shares[place])[:left]:  # what rounding has cost most first
        taken[place] += 1
    return taken


def _parts(there: Mapping[Partition, int], count: int, room: Room) -> list[float]:
    """Which part of what is there each bound allows."""
    parts = [room.records / count] if count else []
    for weight in room.weights:
        total = sum(number * weight(place) for place, number in there.items() if number)
        if total:
            parts.append(room.size / total)
    return parts
