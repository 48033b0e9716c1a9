"""What every task of an application is given: the program, the same for all epochs of a start, and the epoch at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from penstock.epochs.shards import lane_of, shard_of, shards_of
from penstock.handlers import ErrorHandlers
from penstock.lanes.epoch import Catalogue
from penstock.operators.table_joins import TableJoinSide
from penstock.plan import Plan
from penstock.records import NO_TIMESTAMP
from penstock.state import EngineKind, Mark, StoreKind, StoreSpec, record_key
from penstock.timing import Watermark
from penstock.topology import Node, ProcessorNode, SinkNode, SourceNode, Topology, watermarked_nodes

_TIMES_BEHIND_KEY = {StoreKind.WINDOW: 12, StoreKind.TIMESTAMPED_WINDOW: 12, StoreKind.SESSION: 16}
"""How many bytes of a changelog row follow the key."""


@dataclass(frozen=True)
class Program:
    """A topology with its plan, ready to run: picklable, and free of hosts."""

    application_id: str
    nodes: Mapping[str, Node]
    specs: Mapping[str, StoreSpec]
    global_stores: Mapping[str, str]
    plan: Plan
    lanes: int
    shards: int
    directory: str
    engine: EngineKind
    incarnation: str
    handlers: ErrorHandlers
    is_traced: bool = False

    @classmethod
    def of(cls, application_id: str, topology: Topology, plan: Plan, **rest: Any) -> Program:
        """The program of a topology."""
        nodes, specs, stores = dict(topology.nodes), dict(topology.stores), dict(topology.global_stores)
        for store in _joined_stores(nodes, specs):
            specs[store] = replace(specs[store], cached=False)
        return cls(application_id, nodes, specs, stores, plan, **rest)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """All source nodes; records refer to them by index."""
        return tuple(name for name, node in self.nodes.items() if isinstance(node, SourceNode))

    @cached_property
    def depth_of(self) -> Mapping[int, int]:
        """In which stage the records of a source enter, by its index."""
        depths = {name: number for number, stage in enumerate(self.plan.stages) for name in stage.sources}
        return {code: depths[name] for code, name in enumerate(self.sources) if name in depths}

    @cached_property
    def exchange_source(self) -> Mapping[str, int]:
        """Which source reads an exchange, by the exchange's name."""
        reads = ((code, self.nodes[name]) for code, name in enumerate(self.sources))
        return {topic: code for code, node in reads if isinstance(node, SourceNode) and node.internal for topic in node.topics}

    @cached_property
    def logged_stores(self) -> tuple[str, ...]:
        """Stores with a changelog. Global ones have their topic instead."""
        return tuple(name for name, spec in self.specs.items() if spec.logged and name not in self.global_stores)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """Topics that rows refer to by index: the lanes' own, the changelogs, the sinks'."""
        changelogs = [changelog_topic(self.application_id, store) for store in self.logged_stores]
        sinks = [node.topic for node in self.nodes.values() if isinstance(node, SinkNode) and not node.internal]
        fixed = [topic for topic in sinks if isinstance(topic, str)]
        return (lanes_topic(self.application_id), *changelogs, *dict.fromkeys(fixed))

    @cached_property
    def topic_codes(self) -> Mapping[str, int]:
        """The index of each topic in `topics`."""
        return {topic: code for code, topic in enumerate(self.topics)}

    @cached_property
    def attaches_stream_time(self) -> bool:
        """Whether somebody judges lateness or waits for stream time, so that records have to bring it along."""
        follow = any(isinstance(node, ProcessorNode) and node.operator.follows_stream_time for node in self.nodes.values())
        return follow or self.has_watermarks or any(spec.ttl_ms is not None for spec in self.specs.values())

    @cached_property
    def watermarks(self) -> Mapping[str, Watermark]:
        """The strategies by the name of their source."""
        sources = (self.nodes[name] for name in self.sources)
        return {node.name: node.watermark for node in sources if isinstance(node, SourceNode) and node.watermark is not None}

    @cached_property
    def watermarked(self) -> frozenset[str]:
        """The nodes for which the application's watermark is the time."""
        return watermarked_nodes(self.nodes)

    def watermark_of(self, topic: str) -> Watermark | None:
        """The strategy of the source that reads a topic."""
        for name in self.sources:
            node = self.nodes[name]
            assert isinstance(node, SourceNode)
            if node.reads(topic):
                return node.watermark
        return None

    @property
    def has_watermarks(self) -> bool:
        """Whether any source tells how far event time has come."""
        return bool(self.watermarks)

    @cached_property
    def extracts_timestamps(self) -> bool:
        """Whether a source takes event times, or watermarks, from somewhere else than the record's timestamp."""
        sources = (self.nodes[name] for name in self.sources)
        extracts = any(isinstance(node, SourceNode) and node.timestamp is not None for node in sources)
        return extracts or any(strategy.function is not None for strategy in self.watermarks.values())

    @cached_property
    def orders_writes(self) -> bool:
        """Whether records of different lanes write the same keys, in an order that has to be known."""
        return any(spec.takes_writes for spec in self.specs.values())

    @cached_property
    def serial_exchanges(self) -> frozenset[str]:
        """The exchanges into atomic sections: all their rows go to one lane."""
        return frozenset(topic for stage in self.plan.stages if stage.is_serial for topic in stage.reads)

    @cached_property
    def section_stores(self) -> frozenset[str]:
        """The stores that atomic sections write."""
        used = {store for stage in self.plan.stages if stage.is_serial for store in stage.shared}
        return frozenset(store for store in used if self.specs[store].takes_writes)

    def needs_lanes(self, stage: int) -> bool:
        """Whether a stage has to run on the lanes of its keys: it keeps state, or a processor may keep time."""
        names = self.plan.stages[stage].nodes
        operators = [node.operator for name in names if isinstance(node := self.nodes[name], ProcessorNode)]
        return self.plan.stages[stage].is_keyed or any(operator.runs_user_objects for operator in operators)

    @cached_property
    def waits_for_the_clock(self) -> bool:
        """Whether something may be due without new input: timers, schedules, or punctuators of processors."""
        processors = any(isinstance(node, ProcessorNode) and node.operator.runs_user_objects for node in self.nodes.values())
        return processors or any(spec.kind is StoreKind.TIMERS for spec in self.specs.values())

    def shards_of_rows(self, store: str, lane: int) -> ShardFinder:
        """How to find the shard of a changelog row."""
        return ShardFinder(self, store, lane)

    def lane_finder(self, store: str) -> Callable[[bytes], int]:
        """How to find the lane that has a key of a store, by the key's bytes; see `keeps_own_keys`."""
        spec, shards, lanes = self.specs[store], self.shards, self.lanes
        record = record_key(spec, _routing_key(self, store))
        head = b"\x00" if spec.kind is StoreKind.VERSIONED else b""
        tail = bytes(_TIMES_BEHIND_KEY.get(spec.kind, 0))
        lane_of_shard = [lane_of(shard, shards, lanes) for shard in range(shards)]
        return lambda key: lane_of_shard[shard_of(record(head + key + tail), shards)]

    def keeps_own_keys(self, store: str) -> bool:
        """Whether a processor of the user's may keep keys of its own making: such a key is in whichever lanes have put it."""
        nodes = (node for node in self.nodes.values() if isinstance(node, ProcessorNode) and store in node.stores)
        return any(node.operator.runs_user_objects for node in nodes)


class ShardFinder:
    """The shards of a store's changelog rows.

    A row whose key is of another lane's shard was put there by a processor that keeps keys of its own making; it is kept
    with the lane's first shard, and so comes back to this lane.
    """

    def __init__(self, program: Program, store: str, lane: int) -> None:
        own = shards_of(lane, program.shards, program.lanes)
        self._own = frozenset(own)
        self._first = own.start
        self._shards = program.shards
        self._key = record_key(program.specs[store], _routing_key(program, store))

    def __call__(self, rows: list[bytes]) -> list[int]:
        """The shard of each row."""
        own, first, count, key = self._own, self._first, self._shards, self._key
        found = [shard_of(key(row), count) for row in rows]
        return found if own.issuperset(found) else [shard if shard in own else first for shard in found]


def _routing_key(program: Program, store: str) -> Any:
    """The serde of the keys by which records are routed to a store's lanes."""
    if program.specs[store].takes_writes:
        return program.specs[store].key
    for stage in program.plan.stages:
        users = [name for name in stage.nodes if store in getattr(program.nodes[name], "stores", ())]
        for source in stage.sources:
            node = program.nodes[source]
            if isinstance(node, SourceNode) and any(_is_below(program.nodes, user, source) for user in users):
                return node.key
    return None


def _is_below(nodes: Mapping[str, Node], name: str, source: str) -> bool:
    return name == source or any(_is_below(nodes, parent, source) for parent in nodes[name].parents)


def _joined_stores(nodes: Mapping[str, Node], specs: Mapping[str, StoreSpec]) -> set[str]:
    """Stores of tables that are joined with each other.

    Their caches are left out: when both sides change in one epoch, the side that is flushed first would be joined with a row that
    the other has not told of yet, and of two deletions neither would be seen by the join.
    """
    sides = [node.operator for node in nodes.values() if isinstance(node, ProcessorNode)]
    tables = {table for side in sides if isinstance(side, TableJoinSide) for table in (side.this_table, side.other_table)}
    found: set[str] = set()
    while tables:
        node = nodes[tables.pop()]
        cached = {store for store in getattr(node, "stores", ()) if specs[store].cached}
        found |= cached
        if not cached:
            tables.update(node.parents)
    return found


@dataclass(frozen=True)
class Epoch:
    """One epoch: its number, the epoch that Kafka has committed, its clock, and where its records come from.

    `high_times` are the highest event times of each origin before this epoch, `watermarks` what each had told by then (where
    sources have strategies), `watermark` the application's as of the last barrier (None if no source has one), which the lanes
    hear of now, `watermark_before` what they knew. `partitions` tells partitioners how many partitions a topic has. `mark`, where
    given, is for the lanes to save. An epoch that `is_sampled` has its nodes watched.
    """

    number: int
    committed: int
    wall_clock: int
    origins: tuple[tuple[str, int], ...] = ()
    high_times: tuple[int, ...] = ()
    partitions: Mapping[str, int] | None = None
    mark: Mark | None = None
    watermark: int | None = None
    watermarks: tuple[int, ...] = ()
    watermark_before: int = NO_TIMESTAMP
    is_sampled: bool = False

    def catalogue(self, program: Program) -> Catalogue:
        """What codes stand for in this epoch's records."""
        return Catalogue(program.sources, self.origins)


def changelog_topic(application_id: str, store: str) -> str:
    """The topic of a store's changelog, by Kafka Streams' rule."""
    return f"{application_id}-{store}-changelog"


def lanes_topic(application_id: str) -> str:
    """The topic that keeps what lanes remember besides their stores: clocks, timers, the topology itself."""
    return f"{application_id}-lanes-changelog"
