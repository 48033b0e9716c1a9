"""Quix Streams, exactly once, with two processes in one consumer group. It has an environment of its own in .parts/quix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.sides.job import Job
from benchmarks.sides.penstock import APPLICATIONS
from benchmarks.sides.progress import GroupProgress
from verification.harness.processes import PARTS

PYTHON = PARTS / "quix" / "bin" / "python"
LEFT_OUT = {
    "foreign-keys": "Quix Streams joins streams by their key only, and has no tables",
    "passed-on": "measured with state only",
}
COMMIT_INTERVALS_S = ("1", "5")
"""5 s is its default."""


@dataclass(frozen=True, slots=True)
class Quix:
    """It is given a tenth of the records: its rate does not depend on their number, but a run would take hours."""

    settings: str = "5"
    name: str = "quix"
    share: float = 0.1
    keeps_late: bool = False
    follows_tables: bool = True

    def excuse(self, topology: str) -> str | None:
        """It must be installed, and does not have everything."""
        if not PYTHON.exists():
            return "not installed in .parts/quix; `make bench` installs it"
        return LEFT_OUT.get(topology)

    def command(self, job: Job) -> list[str]:
        """The command that starts it."""
        where = [job.application_id, job.bootstrap_servers, str(job.state_dir), str(job.cores), self.settings]
        return [str(PYTHON), str(APPLICATIONS / "quix_app.py"), job.topology, ",".join(job.sources), job.sink, *where]

    def environment(self, job: Job) -> Mapping[str, str]:
        """None of our own packages."""
        return {"PYTHONPATH": ""}

    def progress(self, job: Job) -> GroupProgress:
        """What is in a repartition topic is not done yet."""
        return GroupProgress(job, internal=("repartition__",))

    def epoch_phases(self, job: Job) -> Mapping[str, float]:
        """It has no epochs."""
        return {}

    def runs_on(self, job: Job) -> Mapping[str, Any]:
        """It is a rival."""
        return {}


def candidates() -> list[Quix]:
    """The intervals of its commits."""
    return [Quix(interval) for interval in COMMIT_INTERVALS_S]
