"""`ManyHosts`: an engine whose slots are on the hosts of a cluster, which share no files.

It assigns lanes to slots, where their state is if possible: to move a lane is another assignment. A lane is written only by the
slot that it is assigned to; ids of writes, not locks, tell what belongs to an epoch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Protocol

import pyarrow as pa

from penstock.engines.carrier import Carrier, Errand
from penstock.engines.exchanging import Ending, Listen
from penstock.engines.port import Batches, OnProgress, SlotLostError, Whereabouts
from penstock.engines.reading import Reading
from penstock.engines.requests import Load, Migrate, RestoreLane, RollBack
from penstock.engines.slots import Slot, Slots
from penstock.epochs.in_process import collected
from penstock.epochs.migration import MigrationStep
from penstock.epochs.program import Epoch, GlobalTopics, Program, has_lanes
from penstock.epochs.restore import ReadChangelog, Restored
from penstock.epochs.standing import Committed
from penstock.epochs.wire import OUT, in_order_of_causes
from penstock.errors import LaneMovedError
from penstock.state.remote.client import Address, end_servers
from penstock.state.remote.protocol import Located

_log = logging.getLogger(__name__)


class SpreadSlots(Slots, Protocol):
    """Slots on several hosts. Only the slot at a position can run what is assigned to it."""

    def settled(self) -> Mapping[int, str]:
        """Wait until slots are there; return the host of each position. `have_changed` is about those."""

    def have_changed(self) -> bool:
        """Whether slots were added or lost since `settled` was called."""

    def watch(self, servers: Mapping[str, Address]) -> None:
        """Count the slots of a host as lost if its lane server does not answer; `servers` are their addresses by host."""


class ManyHosts:
    """Runs a program on slots of several hosts. An epoch may take `patience_s`.

    `global_topics` returns what each host reads into its global tables, `ending` how executors write, if they do.
    """

    def __init__(
        self,
        program: Program,
        slots: SpreadSlots,
        patience_s: float,
        global_topics: Callable[[], GlobalTopics | None],
        ending: Callable[[], Ending | None],
    ) -> None:
        self._program = program
        self._slots = slots
        self._carrier = Carrier(program, slots.slot, patience_s, self._listen)
        self._global_topics = global_topics
        self._ending = ending
        self._hosts: tuple[str, ...] = ()
        self._positions: list[int] = []
        self._entering: list[int] = []
        self._servers: dict[int, Address] = {}
        self._known_servers: set[Address] = set()

    def _listen(self, slot: Slot) -> Listen:
        return Listen(slot.host, self._program.server_key, self._program.ports)

    def start(self) -> None:
        """See `Engine.start`."""
        self._slots.start()

    def warm(self) -> None:
        """See `Engine.warm`."""
        self._carrier.run([Errand(position, Load()) for position in self._slots.settled()])

    def place(
        self, committed: Committed, read: ReadChangelog, on_progress: OnProgress, distrusted: Collection[int] = ()
    ) -> Sequence[Restored]:
        """See `Engine.place`."""
        self._assign(self._slots.settled())
        if not has_lanes(self._program):
            return []
        moved = {lane: at for lane, at in self._servers.items() if at[0] != self._hosts[lane] and at[0] in self._slots.hosts}
        requests = [
            RestoreLane(lane, committed, read, lane in distrusted, host, moved.get(lane)) for lane, host in enumerate(self._hosts)
        ]
        restored = self._carrier.restore(self._positions, requests, on_progress)
        self._servers = {lane.lane: (self._hosts[lane.lane], lane.port) for lane in restored}
        self._known_servers.update(self._servers.values())
        self._slots.watch({address[0]: address for address in self._servers.values()})
        return restored

    def run(self, epoch: Epoch, records: Batches, *, is_small: bool) -> pa.Table:
        """See `Engine.run`: no slot has all lanes, so that even a small epoch takes all steps."""
        take = self._carrier.take_steps
        return self._taken(epoch, lambda prepared, ending: take(prepared, records, self._positions, self._entering, ending))

    def read(self, epoch: Epoch, reading: Reading) -> pa.Table:
        """See `Engine.read`."""
        take = self._carrier.take_steps_in_slots
        return self._taken(epoch, lambda prepared, ending: take(prepared, reading, self._positions, self._entering, ending))

    def _taken(self, epoch: Epoch, take: Callable[[Epoch, Ending | None], pa.Table]) -> pa.Table:
        """Take the steps of an epoch; if executors write, return only what they leave."""
        prepared = self._prepared(epoch)
        try:
            return in_order_of_causes(take(prepared, self._ending()))
        except SlotLostError as error:
            raise LaneMovedError(str(error)) from error

    def roll_back(self, epoch: Epoch) -> None:
        """See `Engine.roll_back`: each store notes the attempt, and refuses earlier ones."""
        program = self._program
        if any(program.needs_lanes(stage) for stage in range(len(program.plan.stages))):
            self._on_each_lane(lambda lane: RollBack(epoch, (lane,)))

    def migrate(self, epoch: Epoch, step: MigrationStep) -> pa.Table:
        """See `Engine.migrate`."""
        return self._on_each_lane(lambda lane: Migrate(epoch, step, (lane,)))

    @property
    def server_of(self) -> Callable[[int], Address]:
        """See `Engine.server_of`."""
        return lambda lane: self._servers[lane]

    def located(self, epoch: int) -> Located:
        """Return where lanes are. `epoch` was the last committed one before this call: so the store at an address has that
        epoch as it was committed, or does not know it any more.
        """
        servers = self._servers
        return Located(epoch, [servers[lane] for lane in range(self._program.lanes)])

    def changed(self) -> bool:
        """See `Engine.changed`."""
        return has_lanes(self._program) and self._slots.have_changed()

    @property
    def whereabouts(self) -> Whereabouts:
        """See `Engine.whereabouts`."""
        return Whereabouts("spark", self._slots.hosts, "Spark tasks")

    def close(self) -> None:
        """See `Engine.close`: lane servers would otherwise live as long as their executors."""
        self._carrier.close()
        end_servers(self._known_servers, self._program.server_key)
        self._slots.close()

    def _assign(self, slots: Mapping[int, str]) -> None:
        """Assign lanes to slots: to those of the host where they were, as far as hosts have their share."""
        program, before = self._program, self._hosts
        self._entering = sorted(slots)
        self._hosts = placed(program.lanes, dict(sorted(Counter(slots.values()).items())), before)
        of_host = {host: [position for position, at in sorted(slots.items()) if at == host] for host in set(slots.values())}
        turns = {host: count() for host in of_host}
        self._positions = [of_host[host][next(turns[host]) % len(of_host[host])] for host in self._hosts]
        if self._hosts != before:
            _log.info("lanes run on %s", ", ".join(f"{host} ({n})" for host, n in sorted(Counter(self._hosts).items())))

    def _prepared(self, epoch: Epoch) -> Epoch:
        """Return the epoch with where lanes are; raises if they have to move."""
        if self._slots.turn(epoch.number):
            before = self._hosts
            self._assign(self._slots.settled())
            if self._hosts != before and has_lanes(self._program):
                raise LaneMovedError("The slots of the cluster were renewed, some of them on other hosts.")
        have_changed = self._slots.have_changed()
        if have_changed and has_lanes(self._program):
            raise LaneMovedError("The slots of the cluster have changed.")
        if have_changed or not self._entering:  # a program without lanes is never placed
            self._assign(self._slots.settled())
        return replace(epoch, placement=replace(epoch.placement, servers=self._servers, global_topics=self._global_topics()))

    def _on_each_lane(self, request: Callable[[int], RollBack | Migrate]) -> pa.Table:
        errands = [Errand(position, request(lane)) for lane, position in enumerate(self._positions)]
        try:
            return collected(self._carrier.run(errands), OUT)
        except SlotLostError as error:
            raise LaneMovedError(str(error)) from error


def placed(lanes: int, cores: Mapping[str, int], before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the host of each lane. `cores` are those of the hosts that can be used, `before` is the last placement.

    Example:
        >>> placed(4, {"a": 1, "b": 1})
        ('a', 'a', 'b', 'b')
        >>> placed(4, {"a": 1, "c": 1}, before=("a", "a", "b", "b"))  # host b is gone
        ('a', 'a', 'c', 'c')
        >>> placed(4, {"a": 1, "b": 1, "c": 1}, before=("a", "a", "b", "b"))  # host c is new
        ('a', 'a', 'b', 'c')
    """
    if not cores:
        raise ValueError("no host to place lanes on")
    room = _shares(lanes, cores, [sum(host == one for host in before) for one in cores])
    hosts: list[str | None] = []
    for lane in range(lanes):
        host = before[lane] if lane < len(before) else None
        stays = host is not None and room.get(host, 0) > 0
        hosts.append(host if stays else None)
        if host is not None and stays:
            room[host] -= 1
    free = iter([host for host, count in room.items() for _ in range(count)])
    return tuple(next(free) if host is None else host for host in hosts)


def _shares(lanes: int, cores: Mapping[str, int], had: Sequence[int]) -> dict[str, int]:
    """Return how many lanes each host gets, in proportion to its cores; what is left over goes where most lanes are already."""
    total = sum(cores.values())
    shares = {host: lanes * count // total for host, count in cores.items()}
    left = {host: lanes * count % total for host, count in cores.items()}
    missing = [(shares[host] - kept, -left[host], host) for host, kept in zip(cores, had, strict=True) if left[host]]
    for _, _, host in sorted(missing)[: lanes - sum(shares.values())]:
        shares[host] += 1
    return shares
