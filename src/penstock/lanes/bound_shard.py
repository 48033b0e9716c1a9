"""A lane's work in one shard: the operators of a topology, or of one of its stages, bound to the shard's stores.

It knows neither Spark nor Kafka nor threads. It is built from frozen nodes and a shard's state, receives an epoch's records in
bulk, and produces rows. The test driver and Spark tasks run the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.calls import Callers
from penstock.lanes.binder import Binder
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.calls import make_calls
from penstock.lanes.circuit import Circuit
from penstock.lanes.clocks import Clocks
from penstock.lanes.cursor import Cursor
from penstock.lanes.entrances import Entrances
from penstock.lanes.failures import FailurePolicy, Failures
from penstock.lanes.host import NodeHost
from penstock.lanes.outbox import Outbox
from penstock.lanes.residents import Residents
from penstock.lanes.samples import Samples
from penstock.lanes.sources import Intake
from penstock.lanes.stores import OwnShard, Stores
from penstock.lanes.traces import Traces
from penstock.metrics import UserMetrics
from penstock.topology.nodes import Node


def _one_partition(topic: str) -> int:
    """Return 1, for hosts that do not know the topics."""
    return 1


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a lane uses of its host.

    `wall_clock` is the host's clock in milliseconds; `partitions` returns the number of partitions of a topic, for partitioners;
    `callers` returns the callers of other systems; `start` is a number of the application's start.
    """

    wall_clock: Callable[[], int]
    partitions: Callable[[str], int] = _one_partition
    callers: Callable[[], Callers] = Callers
    start: int = 0


class BoundShard:
    """A running instance of some nodes of a topology, for one shard: what Kafka Streams calls a task.

    Its nodes form a `circuit` over the shard's stores; `clocks` are their time; the `outbox` collects what they send; `cursor` is
    the current record. `watermark` is the application's as of the last commit, None if it has none. `samples` has what nodes do
    in a sampled epoch; `is_traced` says that it is recorded which records lead to which results. `residents` are the user's
    objects, which may have been in earlier lanes.
    """

    __slots__ = ("circuit", "clocks", "cursor", "entrances", "intakes", "is_traced", "outbox", "residents", "samples")

    def __init__(
        self,
        blueprint: Blueprint,
        shard: OwnShard,
        surroundings: Surroundings,
        policy: FailurePolicy | None = None,
        watermark: int | None = None,
        samples: Samples | None = None,
        traces: Traces | None = None,
        residents: Residents | None = None,
    ) -> None:
        self.samples: Samples | None = samples
        self.is_traced: bool = traces is not None
        self.cursor: Cursor = Cursor()
        self.outbox: Outbox = Outbox(self.cursor)
        stores = Stores(blueprint, shard)
        self.clocks: Clocks = Clocks(blueprint, stores, self.cursor, surroundings.wall_clock, watermark, surroundings.start)
        self.residents: Residents = Residents() if residents is None else residents
        self.residents.failures.bind(policy or FailurePolicy(), self.clocks, self.outbox)
        self.circuit: Circuit = Circuit(blueprint, stores, self.residents, surroundings.callers)
        self.entrances: Entrances = Entrances(self.circuit, self._host_of)
        binder = Binder(self._host_of, self.outbox, surroundings.partitions, samples, traces)
        self.intakes: dict[str, Intake] = binder.bind(self.circuit)
        self.circuit.start()
        self.clocks.restore_punctuators()

    def _host_of(self, node: Node) -> NodeHost:
        return NodeHost(node, self.circuit, self.clocks, self.outbox)

    @property
    def stores(self) -> Stores:
        """The stores that nodes are bound to."""
        return self.circuit.stores

    @property
    def metrics(self) -> UserMetrics:
        """The metrics of user code."""
        return self.circuit.metrics

    @property
    def failures(self) -> Failures:
        """How failures of records are handled."""
        return self.circuit.failures

    def advance_watermark(self, watermark: int) -> None:
        """Advance the application's watermark; caches are flushed each time a node has reacted to it."""
        for has_reacted in self.clocks.watermark.advance(watermark):
            if has_reacted:
                self.flush()

    def flush(self) -> None:
        """Make pending calls and emit cached tables; see the function `flush`."""
        flush([self])

    def close(self) -> None:
        """Close user processors; raises the first failure when all are closed."""
        for failure in self.residents.close():
            raise failure


def _one_by_one(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def flush(lanes: Sequence[BoundShard], make: Callable[[Sequence[Callable[[], None]]], None] = _one_by_one) -> None:
    """Make pending calls and emit cached tables, at the end of an epoch, before the commit.

    The lanes are those of several shards, bound to the same nodes: a node's calls are made for all shards at once. A processor
    below one table may write to another that was already flushed, and a table may lead to calls: this repeats until nothing is
    pending. `make` flushes the caches of each lane, where that is walked.
    """
    circuits = [bound.circuit for bound in lanes]
    while True:
        for same_node in reversed(list(zip(*(circuit.pending_calls for circuit in circuits), strict=True))):
            make_calls(same_node)
        make([circuit.stores.flush for circuit in circuits])
        if not any(circuit.is_holding_back for circuit in circuits):
            return
