"""What a running application knows about itself: reports as frozen values, the recorder that holds them, and its health."""

from penstock.observation.health import Health, Indicator, Problem
from penstock.observation.recorder import Recorder
from penstock.observation.reports import (
    CHOSEN,
    DEAD_LETTERS,
    CommittedStores,
    EpochReport,
    OpenEpoch,
    PartitionReport,
    RestoreReport,
    Trouble,
    Worker,
)

__all__ = [
    "CHOSEN",
    "DEAD_LETTERS",
    "CommittedStores",
    "EpochReport",
    "Health",
    "Indicator",
    "OpenEpoch",
    "PartitionReport",
    "Problem",
    "Recorder",
    "RestoreReport",
    "Trouble",
    "Worker",
]
