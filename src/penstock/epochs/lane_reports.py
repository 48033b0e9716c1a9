"""What a lane tells about its work in a stage: always how much and how long, and more of it in epochs that are sampled."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

from penstock.epochs.assignment import Assignment
from penstock.epochs.wire import LaneReport
from penstock.lanes.samples import Samples
from penstock.state import LaneState

_MEMORY = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Follows one stage of one lane, from when it is made to when it is asked for the report."""

    def __init__(self, assigned: Assignment) -> None:
        self._began = perf_counter()
        self._stage = assigned.stage
        self._lane = assigned.lane
        self.samples: Samples | None = Samples() if assigned.epoch.is_sampled else None

    def report(self, records: int, state: LaneState | None = None) -> LaneReport:
        """The report; `state` is the lane's, if it has one, as it was written."""
        seconds = perf_counter() - self._began
        if self.samples is None:
            return LaneReport(self._lane, self._stage, records, seconds)
        sizes = {} if state is None else state.sizes()
        return LaneReport(
            self._lane, self._stage, records, seconds, os.getpid(), _resident_bytes(), self.samples.by_node(), sizes
        )


def _resident_bytes() -> int:
    """What this process has in memory; 0 where the system does not tell."""
    return int(_MEMORY.read_text().split()[1]) * _PAGE if _MEMORY.exists() else 0
