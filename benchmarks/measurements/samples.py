"""Readings of a running application: how far it has come, and the CPU time so far of all processes of the run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from benchmarks.sides.application import Application
from benchmarks.sides.job import Progress
from verification.harness.processes import HarnessError

TIMEOUT_S = 1800
POLL_EVERY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The progress of an application, and the cost so far."""

    at_s: float
    records: int
    cpu_s: Mapping[str, float]
    """CPU time by part: those of the application, `broker`, `harness`, and `machine`, which is all of it."""


class Sampler:
    """Takes samples of an application that runs beside a broker."""

    def __init__(self, application: Application, progress: Progress, broker_pid: int) -> None:
        self._application = application
        self._progress = progress
        self._broker = psutil.Process(broker_pid)

    def now(self, records: int) -> Sample:
        """A sample at this moment."""
        at_s, broker, harness, machine = time.monotonic(), self._broker.cpu_times(), os.times(), psutil.cpu_times()
        return Sample(
            at_s=at_s,
            records=records,
            cpu_s={
                **self._application.cpu_seconds(),
                "broker": broker.user + broker.system,
                "harness": harness.user + harness.system,
                "machine": sum(machine) - machine.idle - getattr(machine, "iowait", 0.0) - getattr(machine, "guest", 0.0),
            },
        )

    def reach(self, records: int, *, settled: bool = False) -> Sample:
        """A sample once at least this many records are committed, and nothing is on its way any more if so asked."""
        end = time.monotonic() + TIMEOUT_S
        while (done := self._progress.records()) < records or (settled and not self._progress.is_settled()):
            self._application.check()
            if time.monotonic() > end:
                raise HarnessError(f"{done} of {records} records after {TIMEOUT_S} s:\n{self._application.log_tail()}")
            time.sleep(POLL_EVERY_S)
        return self.now(done)


def rate(start: Sample, end: Sample) -> float:
    """Records per second between two samples."""
    return (end.records - start.records) / (end.at_s - start.at_s)


def spent(start: Sample, end: Sample) -> dict[str, float]:
    """CPU time between two samples by part, without that of the machine."""
    return {part: end.cpu_s[part] - start.cpu_s.get(part, 0.0) for part in end.cpu_s if part not in {"machine", "harness"}}


def utilisation(start: Sample, end: Sample) -> dict[str, float]:
    """How much of all cores each part used between two samples; `other` is what none of them explains."""
    available_s = (end.at_s - start.at_s) * (os.cpu_count() or 1)
    if available_s <= 0:
        return {}
    used = {part: end.cpu_s[part] - start.cpu_s.get(part, 0.0) for part in end.cpu_s}
    machine = used.pop("machine")
    used["other"] = max(0.0, machine - sum(used.values()))
    return {**{part: seconds / available_s for part, seconds in used.items()}, "all": machine / available_s}
