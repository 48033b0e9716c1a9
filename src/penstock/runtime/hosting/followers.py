"""What follows the commits of an application: queries, deliveries, Spark's tables, and copies of lanes.

`StateCopies` copies the lanes, now and then, to a directory that all hosts reach; in a thread of its own. On a cluster, the lane
server of each host copies its lanes. What fails is logged: the next copies may succeed, and a restore without them only takes
longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

from penstock import machine
from penstock.epochs.program import Program, has_lanes
from penstock.epochs.state_directory import StateDirectory
from penstock.errors import PenstockError
from penstock.queries import CommittedState
from penstock.runtime.hosting.engine import Hosting
from penstock.runtime.instance import Instance
from penstock.state.copies import CopyDirectory, Layout
from penstock.state.remote.client import Address, LaneClient
from penstock.state.remote.protocol import Publish, decode_number

_log = logging.getLogger(__name__)

_LONGEST_S = 3_600.0
"""How long a lane server may take to copy a lane."""

_ENDING_S = 10.0
"""How long the end of an application waits for the lane that is being copied."""


class StateCopies:
    """Copies all lanes with `copy`, one after the other, `interval_s` after it has begun to do so before."""

    def __init__(
        self, lanes: int, interval_s: float, copy: Callable[[int], None], clock: Callable[[], float] = machine.monotonic
    ) -> None:
        self._lanes = lanes
        self._interval_s = interval_s
        self._copy = copy
        self._clock = clock
        self._due = clock() + interval_s
        self._ended = machine.event()
        self._thread: machine.Thread | None = None

    def after_commit(self, epoch: int) -> None:
        """Begin to copy if that is due, and the last time is over. Never blocks, never raises."""
        is_copying = self._thread is not None and self._thread.is_alive()
        if is_copying or self._clock() < self._due or self._ended.is_set():
            return
        self._due = self._clock() + self._interval_s
        self._thread = machine.thread(self._run, "penstock-state-copies")
        self._thread.start()

    def close(self) -> None:
        """Copy no other lane, and wait a moment for the current one."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_ENDING_S)

    def _run(self) -> None:
        began, copied = self._clock(), 0
        for lane in range(self._lanes):
            if self._ended.is_set():
                return
            try:
                self._copy(lane)
                copied += 1
            except (PenstockError, OSError, ValueError) as error:
                _log.warning("lane %d was not copied: %s", lane, error)
        _log.info("copied %d of %d lanes in %.1f s", copied, self._lanes, self._clock() - began)


def state_copies(
    program: Program, interval_s: float, state: CommittedState, server_of: Callable[[int], Address] | None
) -> list[StateCopies]:
    """Return what copies the lanes of a program, if it shall; `server_of` returns the address of a lane's server on a cluster."""
    if not program.copies or not has_lanes(program):
        return []

    def through_server(lane: int) -> None:
        assert server_of is not None
        request = Publish(lane, program.copies, program.application_id, program.shards, program.lanes)
        with closing(LaneClient(server_of(lane), program.server_key, _LONGEST_S)) as client:
            client.ask(request, decode_number)

    def here(lane: int) -> None:
        scratch = StateDirectory(program.directory, program.application_id).root
        directory = CopyDirectory(program.copies, program.application_id)
        directory.publish(Layout(program.shards, program.lanes), lane, state.lane(lane), scratch)

    return [StateCopies(program.lanes, interval_s, here if server_of is None else through_server)]


Follow = Callable[[int], None]
"""Called after each commit, with its epoch."""


def followed_by(
    instance: Instance, state: CommittedState, deliver: Follow, hosting: Hosting, closers: list[Callable[[], None]]
) -> Follow:
    """Return what is called after each commit; Spark, if it is there, shows the stores as tables. `closers` gets what ends it."""
    interval_s = instance.config.state_copy_interval_ms / 1_000
    copies = state_copies(instance.program, interval_s, state, hosting.engine.server_of)
    closers.extend(each.close for each in copies)
    followers = [state.after_commit, deliver, *(each.after_commit for each in copies)]
    if hosting.spark is not None:
        hosting.spark.query(state)
        followers.append(hosting.spark.after_commit)

    def follow(epoch: int) -> None:
        for follower in followers:
            follower(epoch)

    return follow
