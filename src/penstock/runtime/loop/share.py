"""The share of the input that an epoch takes: all that fits, except from partitions that have to wait.

What an epoch leaves is for a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from penstock.records import Partition


class Room(NamedTuple):
    """What fits into an epoch: at most `records`, and at most `size` bytes by each of the weights.

    A weight returns the expected bytes of a record of a partition, such as bytes read or bytes sent.
    """

    records: int
    size: int
    weights: tuple[Callable[[Partition], float], ...] = ()


def take(
    offsets: Mapping[Partition, int], read_to: Mapping[Partition, int], waiting: Collection[Partition], room: Room
) -> dict[Partition, int]:
    """Return the new offset of each partition after an epoch that starts at `offsets` and may go to `read_to`.

    All partitions give the same fraction of their records, so that they reach their ends together. There is always room for one
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
    left = max(0, max(1, int(count * part)) - sum(int(share) for share in shares.values()))  # the product may be rounded down
    for place in sorted(shares, key=lambda place: int(shares[place]) - shares[place])[:left]:  # the most rounded down first
        taken[place] += 1
    return taken


def _parts(there: Mapping[Partition, int], count: int, room: Room) -> list[float]:
    """Return the fraction of the available records that each limit allows."""
    parts = [room.records / count] if count else []
    for weight in room.weights:
        total = sum(number * weight(place) for place, number in there.items() if number)
        if total:
            parts.append(room.size / total)
    return parts
