"""What an application has to do, and what a side must be able to tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from verification.harness.processes import free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An application: its topology, its topics and its place. The same for all sides."""

    application_id: str
    topology: str
    sources: tuple[str, ...]
    """The first is the measured one."""
    sink: str
    bootstrap_servers: str
    state_dir: Path
    partitions: int = 4
    cores: int = 2
    admin_port: int = field(default_factory=free_port)
    ran_on: dict[str, Any] = field(default_factory=dict)
    """Noted when an application ends: see `Side.runs_on`."""


class Progress(Protocol):
    """How far an application has come, seen from outside."""

    def records(self) -> int:
        """The records of the measured source whose results are committed, or on their way through internal topics."""

    def is_settled(self) -> bool:
        """Whether nothing is on its way any more: tables and internal topics are processed, too."""

    def close(self) -> None:
        """Close connections."""


class Side(Protocol):
    """An implementation of jobs, with fixed settings."""

    @property
    def name(self) -> str:
        """Its name in reports."""

    @property
    def settings(self) -> str:
        """Its settings among those that were tried; empty if there is only one."""

    @property
    def share(self) -> float:
        """The share of a workload's records that it is given: less than 1 for a side that would take hours."""

    @property
    def keeps_late(self) -> bool:
        """Whether it may count late records: see `Expected.check`."""

    @property
    def follows_tables(self) -> bool:
        """Whether it processes the changes of tables, rather than read them once."""

    def excuse(self, topology: str) -> str | None:
        """Why it cannot run a topology; None if it can."""

    def command(self, job: Job) -> list[str]:
        """The command that starts it."""

    def environment(self, job: Job) -> Mapping[str, str]:
        """Variables of the process."""

    def progress(self, job: Job) -> Progress:
        """How far it has come."""

    def epoch_phases(self, job: Job) -> Mapping[str, float]:
        """Seconds by phase, if it reports them."""

    def runs_on(self, job: Job) -> Mapping[str, Any]:
        """What a running application of Penstock says of itself: engine, slots, Spark tasks. Nothing for rivals."""


Candidates = Sequence[Side]
"""One side with several settings: the first round tries all, the others use the best."""
