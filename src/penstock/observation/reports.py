"""Reports on a running application as frozen values: an epoch, a partition, a restore, the stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.epochs.wire import LaneReport

CHOSEN = "(chosen per record)"
DEAD_LETTERS = "(dead letters)"
"""Stand for topics in `EpochReport.sent` that records choose: the number of names from data has no bound."""


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """The current epoch: its phase, and when (`time.monotonic`) it and the phase began."""

    number: int
    phase: str
    began: float
    phase_began: float


@dataclass(frozen=True, slots=True)
class EpochReport:
    """A committed epoch.

    `records` counts the offsets it read (transaction markers have offsets, too). `phases` are seconds by phase, in order: what
    comes before the job, the job, and the steps of the commit. `sent` counts the rows by topic, changelogs included; rows whose
    topic is chosen per record are counted as one topic, and so are dead letters. If `is_sampled`, the lanes' reports include
    nodes and stores.
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
    """A source partition as of the last commit; -1 means unknown or absent."""

    topic: str
    partition: int
    offset: int
    end: int
    high_time: int
    watermark: int
    is_idle: bool = False

    @property
    def lag(self) -> int:
        """The number of offsets still to be read, -1 if unknown."""
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


class Worker(NamedTuple):
    """A Python worker: its host, empty without a cluster, and its process id there."""

    host: str
    process: int


class Trouble(NamedTuple):
    """A warning or an error of the log: when, how bad, and what."""

    at_ms: int
    level: str
    what: str


@dataclass(frozen=True, slots=True)
class CommittedStores:
    """The stores over all lanes, as of the last sampled epoch: entries and bytes by name."""

    entries: Mapping[str, int]
    size_bytes: Mapping[str, int]
