"""`Engine`: the port to where lanes run, whatever their processes are.

An engine carries; it never decides. It brings the steps of an epoch to the lanes, and rows back: ordered by their causes, they
are those that `penstock.epochs.in_process.run_epoch` returns. It knows no offset to commit, no size of an epoch, no retry and no
transaction. After a call, each lane is at the epoch, or can be brought back to the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.engines.reading import Reading
from penstock.epochs.migration import MigrationStep
from penstock.epochs.program import Epoch
from penstock.epochs.restore import ReadChangelog, Restored
from penstock.epochs.standing import Committed
from penstock.errors import PenstockError
from penstock.state.remote.client import Address

Batches = Sequence[pa.RecordBatch]
OnProgress = Callable[[int, str, "int | None"], None]
"""Called when the restore of a lane has advanced: with the lane, where it is, and how many offsets are left, if that is known.

It is nowhere (`""`) when it is done.
"""


STUCK = "Check the disk of state_dir there, and the way to the brokers. As long as it advances, a restore may take hours."
"""The cure if a restore stands still."""


class SlotLostError(PenstockError):
    """A slot has ended; `lanes` are those whose restore it had begun.

    `by_request` says whether the request may have ended it: not if it was lost before, or with its host.
    """

    def __init__(self, text: str, lanes: Collection[int] = (), *, by_request: bool = False) -> None:
        super().__init__(text)
        self.lanes: frozenset[int] = frozenset(lanes)
        self.by_request: bool = by_request


class TaskFailedError(PenstockError):
    """A request has failed for a reason that Penstock does not know, and that may not come again."""


class LateError(PenstockError):
    """A request has taken longer than it may."""


@dataclass(frozen=True)
class Whereabouts:
    """Where an engine runs lanes: the number of slots on each host, and what they are."""

    engine: str
    slots: Mapping[str, int]
    kind: str

    @property
    def count(self) -> int:
        """The number of slots."""
        return sum(self.slots.values())

    def as_dict(self) -> dict[str, object]:
        """Return it as a JSON value."""
        return {"name": self.engine, "kind": self.kind, "slots": self.count, "hosts": dict(self.slots)}

    def __str__(self) -> str:
        hosts = ", ".join(f"{count} on {host}" for host, count in sorted(self.slots.items())) or "none yet"
        return f"engine {self.engine}: {self.count} {self.kind} ({hosts})"


class Engine(Protocol):
    """Hosts the lanes of a program. Only `start` and `close` do not wait until slots are there."""

    def start(self) -> None:
        """Start slots, in the background."""

    def warm(self) -> None:
        """Wait until all slots have loaded the program."""

    def place(
        self, committed: Committed, read: ReadChangelog, on_progress: OnProgress, distrusted: Collection[int] = ()
    ) -> Sequence[Restored]:
        """Place all lanes on the slots that there are, and restore them to the committed epoch.

        If slots are lost, `SlotLostError` names the lanes whose stores may have killed them. The stores of lanes that are
        `distrusted` are not used, because they may have killed an earlier attempt.
        """

    def run(self, epoch: Epoch, records: Batches, *, is_small: bool) -> pa.Table:
        """Run an epoch with these records, if any; return its rows. If it `is_small`, one slot may run it on its own.

        Not if the user's processors stay with the lanes: then every epoch runs where they are.
        """

    def read(self, epoch: Epoch, reading: Reading) -> pa.Table:
        """Run an epoch whose records slots read for themselves, because there are many; return its rows."""

    def roll_back(self, epoch: Epoch) -> None:
        """Roll all lanes back to the epoch before this one; earlier attempts can no longer write."""

    def migrate(self, epoch: Epoch, step: MigrationStep) -> pa.Table:
        """Run a step of a migration on all lanes; return its rows."""

    @property
    def server_of(self) -> Callable[[int], Address] | None:
        """Returns the address at which snapshots of a lane are taken; None if the files of all lanes are on this host."""

    def changed(self) -> bool:
        """Whether lanes have to be placed again, because slots were added or lost."""

    @property
    def whereabouts(self) -> Whereabouts:
        """Where lanes run now."""

    def close(self) -> None:
        """End all slots."""
