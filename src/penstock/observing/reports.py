"""What is known about a running application at one moment, as frozen values: an epoch, a partition, a restore, the stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.epochs.wire import LaneReport

Partition = tuple[str, int]

CHOSEN = "(chosen per record)"
DEAD_LETTERS = "(dead letters)"
"""What stands for topics in `EpochReport.sent` where records name them: names from data would be without bound."""


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """The epoch in hand: the phase it is in, and since when (`time.monotonic`) it and its phase have lasted."""

    number: int
    phase: str
    began: float
    phase_began: float


@dataclass(frozen=True, slots=True)
class EpochReport:
    """An epoch that is committed.

    `records` counts the offsets it has moved on (transaction markers have offsets too). `phases` are seconds by phase, in order:
    what comes before the job, the job, and the steps of the commit. `sent` counts the rows for each topic, changelogs too;
    those whose topic is chosen record by record, and dead letters, are each counted as one.
    `is_sampled` says that the lanes' reports tell about nodes and stores.
    """

    number: int
    began_ms: int
    seconds: float
    records: int
    phases: Mapping[str, float]
    sent: Mapping[str, int] = field(default_factory=dict)
    dropped: tuple[tuple[str, str, int], ...] = ()
    lanes: tuple[LaneReport, ...] = ()
    is_sampled: bool = False


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """A source partition as of the last barrier; -1 stands for what is not known or not there."""

    topic: str
    partition: int
    offset: int
    end: int
    high_time: int
    watermark: int
    is_idle: bool = False

    @property
    def lag(self) -> int:
        """How many offsets are still to be read, -1 if nobody knows yet."""
        return -1 if self.end < 0 else max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The progress of a restore: offsets left and in total, by lane; `seconds` is its duration so far, or in all.

    Lanes report one after the other. `lanes` is how many there are; those that have not reported count as the others do on
    average. `reached` is the fraction before: progress does not fall when a lane turns out to have more to read.
    """

    left: Mapping[int, int]
    total: Mapping[int, int]
    seconds: float
    is_done: bool
    lanes: int = 1
    reached: float = 0.0

    @property
    def fraction(self) -> float:
        """The part that is done, from 0 to 1."""
        known = sum(self.total.values())
        if self.is_done or not known:
            return 1.0 if self.is_done else self.reached
        expected = known * max(1.0, self.lanes / len(self.total))
        return max(self.reached, (known - sum(self.left.values())) / expected)


@dataclass(frozen=True, slots=True)
class CommittedStores:
    """The stores over all lanes, as of the last epoch that was sampled: entries and bytes by name."""

    entries: Mapping[str, int]
    size_bytes: Mapping[str, int]
