"""The shards of a driver under test: which one a record belongs to, what each has of the state, and all of them together.

There is one by default, to which everything belongs, as in Kafka Streams' own driver. Several are those of the application.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock.epochs.program import Program
from penstock.epochs.routes import canonical_keys
from penstock.epochs.shards import shard_of, shard_of_partition
from penstock.errors import TopologyError
from penstock.handlers import ErrorHandlers
from penstock.hosted import Resident
from penstock.lanes.bound_shard import BoundShard
from penstock.lanes.outbox import Row
from penstock.lanes.position import RawRecord
from penstock.lanes.sources import Intake
from penstock.lanes.stores import OwnShard, Stores
from penstock.queries import CommittedState, view
from penstock.queries.snapshots import Snapshot
from penstock.records import RecordMetadata
from penstock.state import Engine, EngineKind, LaneState, LaneView, ShardState, by_query
from penstock.testing.queues import sections
from penstock.topology import Topology
from penstock.topology.nodes import Node
from penstock.topology.plan import plan


class OneShard:
    """The only shard of a driver."""

    count: int = 1

    def __init__(self, topology: Topology, state: LaneState) -> None:
        self._known = by_query(topology.stores)
        self._state = state
        self.names: Collection[str] = topology.stores.keys()
        """The stores that tests may see."""
        self.sub_topologies: Mapping[str, str] = {}
        """Which nodes share a stream time, by the name of the first: all of them, as in Kafka Streams' own driver."""

    def own(self, number: int) -> OwnShard:
        """Return what a shard has of the state, and what it can read of others."""
        return OwnShard(self._state)

    def of(self, intake: Intake, origin: RecordMetadata, raw: RawRecord) -> int:
        """Return the shard of a record."""
        return 0

    def store(self, name: str, first: Stores) -> Any:
        """Return a store, to read and to fill it; `first` are those that the first shard's nodes are bound to."""
        return first.store(self._known.get(name, name))


class SeveralShards(OneShard):
    """Shards as an application has them: records go to that of their key, and stores are read as by its queries."""

    def __init__(self, topology: Topology, state: LaneState, engine: Engine, count: int) -> None:
        super().__init__(topology, state)
        if found := sections(topology):
            raise TopologyError(
                f"shards={count}: {found[0]} leads to an atomic section, which holds all shards. Test it with one shard."
            )
        self.count = count
        self._view: LaneView | None = None
        program = _program(topology, count)
        self.sub_topologies: Mapping[str, str] = program.sub_topologies
        self._queried = _Queried(program, state, engine)
        self.names: Collection[str] = self._queried.specs.keys() & topology.stores.keys()

    def own(self, number: int) -> OwnShard:
        """See `OneShard`."""
        return OwnShard(
            self._state.shard(number),
            self._state,
            lambda key: shard_of(key, self.count) == number,
            self._owner_before,
        )

    def _owner_before(self, key: bytes) -> ShardState:
        if self._view is None or self._view.epoch != self._state.epoch:
            self._view = self._state.read_committed(self._state.epoch)
        return self._view.shard(shard_of(key, self.count))

    def of(self, intake: Intake, origin: RecordMetadata, raw: RawRecord) -> int:
        """See `OneShard`. The partition of a record in an exchange is the shard that has sent it."""
        if raw.key is None:
            return shard_of_partition(origin.partition, self.count)
        if intake.node.internal:
            return shard_of(raw.key, self.count)
        [key] = canonical_keys(intake.node.key, pa.chunked_array([[raw.key]], pa.binary()))
        return 0 if key is None else shard_of(key, self.count)

    def store(self, name: str, first: Stores) -> Any:
        """See `OneShard`; a global store is that of the first shard, any other is read over all shards."""
        if first.is_global(self._known.get(name, name)):
            return super().store(name, first)
        return view(self._queried, name)


def shards_of(topology: Topology, state: LaneState, engine: Engine, count: int) -> OneShard:
    """Return the shards of a driver, or the only one."""
    if count < 1:
        raise TopologyError(f"shards={count}: a driver has at least one.")
    return OneShard(topology, state) if count == 1 else SeveralShards(topology, state, engine, count)


class _Queried(CommittedState):
    """The stores of all shards, as of the last record."""

    def __init__(self, program: Program, state: LaneState, engine: Engine) -> None:
        super().__init__(program, lambda: state.epoch)
        self._engine = engine

    def current(self) -> Snapshot:
        return Snapshot(self.epoch, [self._engine], self.program.shards, None)


def residents_of(lanes: Iterable[BoundShard]) -> list[tuple[Node, Resident]]:
    """Return the user's objects in all shards, with their nodes."""
    return [found for lane in lanes for found in lane.residents]


def close_all(lanes: Iterable[BoundShard]) -> None:
    """Close the user's objects in all shards; raises the first failure when all are closed."""
    for failure in [failure for lane in lanes for failure in lane.residents.close()]:
        raise failure


def dropped_by(lanes: Iterable[BoundShard]) -> dict[tuple[str, str], int]:
    """Return how many records all shards have dropped, by node and reason."""
    return dict(sum((Counter(lane.outbox.dropped) for lane in lanes), Counter()))


def sent_by(lanes: Iterable[BoundShard]) -> list[tuple[Row, int]]:
    """Return and remove the rows that the shards have sent, each with the number of its shard."""
    return [(row, shard) for shard, lane in enumerate(lanes) for row in lane.outbox.drain()]


def _program(topology: Topology, shards: int) -> Program:
    """Return the topology as the application would run it; nothing of it touches files."""
    return Program.of(
        "topology-test-driver",
        topology,
        plan(topology),
        lanes=1,
        shards=shards,
        directory="",
        engine=EngineKind.MEMORY,
        incarnation="",
        handlers=ErrorHandlers(),
    )
