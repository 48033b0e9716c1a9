"""How long the user's processors live: as long as their shard stays in this process, and its state is what they have left.

A lane's store has the id of its last write. If that is the one that this process wrote, the processors go on: no other process
has run the lane, and nothing was rolled back. Otherwise the stay has ended: they are closed, and others begin with `init`. So
the attributes of a processor always belong to the state of its stores.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.epochs.assignment import Assignment
from penstock.epochs.program import Program
from penstock.lanes.residents import Residents
from penstock.metrics import UserMetrics
from penstock.state import LaneState, ShardState, continue_with

_log = logging.getLogger(__name__)


class Stay:
    """A lane in this process, with the user's processors in each of its shards, whichever stages run them."""

    def __init__(self) -> None:
        self.epoch: int = -1
        """The last epoch that ran here."""
        self._write_id: str | None = None
        self._residents: dict[int, Residents] = {}
        self._shards: dict[int, ShardState] = {}
        self._globals: list[ShardState] = []

    def begin(self, state: LaneState, globals_: LaneState | None) -> None:
        """Go on with the lane's state if it is what this process has left, else end the stay and begin another one."""
        if state.head.write_id != self._write_id:
            self.end()
        self._write_id = None
        continue_with(state, self._shards.values())
        if globals_ is not None:
            continue_with(globals_, self._globals)

    def residents(self, shard: int) -> Residents:
        """Return the user's objects in a shard."""
        found = self._residents.get(shard)
        if found is None:
            found = self._residents[shard] = Residents(UserMetrics(str(shard)))
        return found

    def keep(self, state: LaneState, globals_: LaneState | None) -> None:
        """Keep what user code holds of the state, which was just written."""
        self._residents = {shard: found for shard, found in self._residents.items() if len(found)}
        self._shards = {shard: state.shard(shard) for shard in self._residents}
        self._globals = [] if globals_ is None or not self._residents else [globals_.shard(0)]
        self._write_id = state.head.write_id

    def end(self) -> None:
        """Close all processors. If one fails to close, that is logged: what it has processed is not affected."""
        for residents in self._residents.values():
            for failure in residents.close():
                _log.warning("A processor failed to close", exc_info=failure)
        self._residents.clear()
        self._shards.clear()
        self._globals.clear()
        self._write_id = None


_stays: dict[tuple[str, str], dict[int, Stay]] = {}
"""The stays of each start of an application in this process, by lane."""


@contextmanager
def staying(assigned: Assignment, state: LaneState, globals_: LaneState | None = None) -> Iterator[Stay]:
    """Provide the stay of a lane for a stage that writes the lane's state; if that fails, the stay ends."""
    program, epoch = assigned.program, assigned.epoch
    stays = _stays.setdefault((program.directory, program.incarnation), {})
    for lane in [lane for lane, other in stays.items() if lane != assigned.lane and other.epoch < epoch.previous]:
        stays.pop(lane).end()  # it has run elsewhere since
    stay = stays.setdefault(assigned.lane, Stay())
    stay.begin(state, globals_)
    try:
        yield stay
    except BaseException:
        stay.end()
        raise
    stay.epoch = epoch.number
    stay.keep(state, globals_)


def end_stays(program: Program | None = None) -> None:
    """Close all processors of a program in this process, or of all programs."""
    for key in list(_stays) if program is None else [(program.directory, program.incarnation)]:
        for stay in _stays.pop(key, {}).values():
            stay.end()
