"""How long the user's processors live: as long as their shard stays in this process, and its state is what they have left.

A lane's store has the id of its last write. If that is the one that this process wrote, the processors go on: no other process
has run the lane, and nothing was rolled back. Otherwise the stay has ended: they are closed, and others begin with `init`. So
the attributes of a processor always belong to the state of its stores.

They are also of one thread, as what they have opened may be: if their shard is walked in another one, they end there, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.epochs.assignment import Assignment
from penstock.epochs.overlap import Pace, in_thread
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
        self._threads: dict[int, int | None] = {}

    def begin(self, state: LaneState, globals_: LaneState | None) -> None:
        """Go on with the lane's state if it is what this process has left, else end the stay and begin another one."""
        if state.head.write_id != self._write_id:
            self.end()
        self._write_id = None
        continue_with(state, self._shards.values())
        if globals_ is not None:
            continue_with(globals_, self._globals)

    def settle(self, shard: int, thread: int | None) -> None:
        """Let a shard be walked in a thread of this process, or in the main one; objects that began elsewhere end."""
        if shard in self._residents and self._threads.get(shard) != thread:
            self._close(shard)
        self._threads[shard] = thread

    def make(self, shards: Sequence[int], calls: Sequence[Callable[[], None]]) -> None:
        """Make a call for each shard where that was walked, one after the other."""
        for shard, call in zip(shards, calls, strict=True):
            thread = self._threads.get(shard)
            if thread is None:
                call()
            else:
                in_thread(thread, call).result()

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
        for shard in list(self._residents):
            self._close(shard)
        self._shards.clear()
        self._globals.clear()
        self._write_id = None

    def _close(self, shard: int) -> None:
        residents, thread = self._residents.pop(shard), self._threads.get(shard)
        for failure in residents.close() if thread is None else in_thread(thread, residents.close).result():
            _log.warning("A processor failed to close", exc_info=failure)


_stays: dict[tuple[str, str], dict[int, Stay]] = {}
"""The stays of each start of an application in this process, by lane."""


_paces: dict[tuple[str, str], dict[int | None, Pace]] = {}
"""How lanes are walked in this process, by lane; None is for stages that need no lane."""


def pace_of(program: Program, lane: int | None = None) -> Pace:
    """Return how a lane is walked in this process."""
    return _paces.setdefault((program.directory, program.incarnation), {}).setdefault(lane, Pace(program.blocking_threads))


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
    if program is None:
        _paces.clear()
