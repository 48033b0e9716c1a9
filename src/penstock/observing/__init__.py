"""What a running application knows about itself: reports as frozen values, the recorder that holds them, and its health."""

from penstock.observing.health import Health, Indicator, Problem
from penstock.observing.recorder import Recorder
from penstock.observing.reports import (
    CHOSEN,
    DEAD_LETTERS,
    CommittedStores,
    EpochReport,
    OpenEpoch,
    PartitionReport,
    RestoreReport,
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
]
