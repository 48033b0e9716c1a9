"""What an epoch takes of its input: all that Spark has read, unless partitions that are too far ahead have to wait.

Spark goes on reading every partition. What an epoch leaves of a batch is read once more, by offsets, when its turn has come.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

Partition = tuple[str, int]


class Taken(NamedTuple):
    """What an epoch takes.

    `ends` is how far each partition has come then. Of the batch at hand, records from `limits` on are left. `missed` are ranges
    of offsets that earlier batches have had and no epoch has taken.
    """

    ends: dict[Partition, int]
    limits: dict[Partition, int]
    missed: dict[Partition, tuple[int, int]]


def take(
    offsets: Mapping[Partition, int],
    begins: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    waiting: Collection[Partition],
    most: int,
) -> Taken:
    """What is taken of a batch that goes from `begins` to `ends`, where `offsets` have been processed.

    Of what was missed, `most` per partition at once.

    Example:
        >>> fast, slow = ("in", 0), ("in", 1)
        >>> take({fast: 10, slow: 10}, {fast: 10, slow: 10}, {fast: 90, slow: 20}, [fast], 50)
        Taken(ends={('in', 0): 10, ('in', 1): 20}, limits={('in', 0): 10}, missed={})
        >>> take({fast: 10, slow: 20}, {fast: 90, slow: 20}, {fast: 95, slow: 20}, [], 100)
        Taken(ends={('in', 0): 95, ('in', 1): 20}, limits={}, missed={('in', 0): (10, 90)})
    """
    taken = Taken(dict(ends), {}, {})
    for partition, offset in offsets.items():
        begin = begins[partition]
        if partition in waiting:
            taken.ends[partition], taken.limits[partition] = offset, begin
        elif offset < begin:
            until = min(begin, offset + most)
            taken.missed[partition] = (offset, until)
            if until < begin:
                taken.ends[partition], taken.limits[partition] = until, begin
    return taken
