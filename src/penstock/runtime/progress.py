"""How far an application has come: the value that epochs go on from, and that a commit moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.records import NO_TIMESTAMP, Partition


@dataclass(frozen=True)
class Progress:
    """How far an application has come: the epoch that is committed, and each source partition's offset and high time.

    `watermarks` are what partitions have told whose source has a strategy, `watermark` is the application's.
    """

    epoch: int
    offsets: Mapping[Partition, int]
    high_times: Mapping[Partition, int]
    watermarks: Mapping[Partition, int] = field(default_factory=dict)
    watermark: int = NO_TIMESTAMP

    @cached_property
    def origins(self) -> tuple[Partition, ...]:
        """The partitions that are read, in the order by which an epoch's records refer to them."""
        return tuple(sorted(self.offsets))
