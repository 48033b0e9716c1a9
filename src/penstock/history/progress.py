"""The progress of an application: where epochs continue, and what each commit advances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.records import NO_TIMESTAMP, Partition


@dataclass(frozen=True)
class Progress:
    """The progress of an application: the committed epoch, and each source partition's offset and highest event time.

    `watermarks` are those of partitions whose source declares one; `watermark` is the application's. `heads` are the ids of the
    writes of that epoch, by lane.
    """

    epoch: int
    offsets: Mapping[Partition, int]
    high_times: Mapping[Partition, int]
    watermarks: Mapping[Partition, int] = field(default_factory=dict)
    watermark: int = NO_TIMESTAMP
    heads: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def origins(self) -> tuple[Partition, ...]:
        """The partitions that are read; an epoch's records refer to them by index."""
        return tuple(sorted(self.offsets))
