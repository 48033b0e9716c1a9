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
    """How far a restore has come: offsets left and in all, by lane; `seconds` since it began, or that it took."""

    left: Mapping[int, int]
    total: Mapping[int, int]
    seconds: float
    is_done: bool

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        total = sum(self.total.values())
        return 1.0 if self.is_done else 1 - sum(self.left.values()) / total if total else 0.0


@dataclass(frozen=True, slots=True)
class CommittedStores:
    """The stores over all lanes, as of the last epoch that was sampled: entries and bytes by name."""

    entries: Mapping[str, int]
    size_bytes: Mapping[str, int]
