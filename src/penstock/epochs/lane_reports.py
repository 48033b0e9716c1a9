"""Reports of lanes on their work in a stage: always records and time, and more in sampled epochs."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

import msgspec

from penstock.epochs.assignment import Assignment
from penstock.epochs.wire import LaneReport
from penstock.lanes.samples import Samples, by_node
from penstock.state import LaneState

_MEMORY = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Measures one stage of one lane, from its creation to the report."""

    def __init__(self, assigned: Assignment) -> None:
        self._began = perf_counter()
        self._stage = assigned.stage
        self._lane = assigned.lane
        self._host = (assigned.epoch.placement.servers or {}).get(assigned.lane, ("", 0))[0]
        self._is_sampled = assigned.epoch.is_sampled
        self._samples: list[Samples] = []

    def samples(self) -> Samples | None:
        """Return what measures the nodes of a shard; None if the epoch is not sampled."""
        if not self._is_sampled:
            return None
        self._samples.append(Samples())
        return self._samples[-1]

    def report(self, records: int, state: LaneState | None = None) -> LaneReport:
        """Return the report; `state` is the lane's after writing, if it has one."""
        seconds = perf_counter() - self._began
        report = LaneReport(self._lane, self._stage, records, seconds, write_id="" if state is None else state.head.write_id)
        if not self._is_sampled:
            return report
        return msgspec.structs.replace(
            report,
            host=self._host,
            worker=os.getpid(),
            memory=_resident_bytes(),
            nodes=by_node(self._samples),
            stores={} if state is None else state.sizes(),
        )


def _resident_bytes() -> int:
    """Return the resident memory of this process; 0 if unknown."""
    return int(_MEMORY.read_text().split()[1]) * _PAGE if _MEMORY.exists() else 0
