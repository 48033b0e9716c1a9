"""What every task of an application receives: the program, the same for all epochs of a start, and the current epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from penstock.epochs.shards import shard_of
from penstock.handlers import ErrorHandlers
from penstock.lanes.epoch import Catalogue
from penstock.operators.counts import one_more
from penstock.operators.table_joins import TableJoinSide
from penstock.records import NO_TIMESTAMP, Headers, Partition
from penstock.serdes import Serde, String
from penstock.serdes.presence import Presence
from penstock.serdes.registry.registry import Registry
from penstock.state import EngineKind, Mark, StoreKind, StoreSpec, record_key
from penstock.state.remote.accepting import ANY_PORT, Ports
from penstock.timing import Watermark
from penstock.topology import Node, ProcessorNode, SinkNode, SourceNode, Topology, watermarked_nodes
from penstock.topology.bindings import bound_nodes, bound_specs, changelog_topic
from penstock.topology.plan import Plan


def without_unread_values(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Return the nodes with exchanges that leave out the values of records that are only counted."""
    sources = [node for node in nodes.values() if isinstance(node, SourceNode) and node.internal]
    counted = {topic for source in sources if _is_counted(nodes, source) for topic in source.topics}
    return {name: _lightened(node, counted) for name, node in nodes.items()}


def _is_counted(nodes: Mapping[str, Node], source: SourceNode) -> bool:
    below = [node for node in nodes.values() if source.name in getattr(node, "parents", ())]
    return bool(below) and all(
        isinstance(node, ProcessorNode) and getattr(node.operator, "aggregator", None) is one_more for node in below
    )


def _lightened(node: Node, counted: set[str]) -> Node:
    if isinstance(node, SourceNode) and node.internal and counted.issuperset(node.topics):
        return replace(node, value=Presence())
    if isinstance(node, SinkNode) and node.internal and node.topic in counted:
        return replace(node, value=Presence())
    return node


_TIMES_BEHIND_KEY = {StoreKind.WINDOW: 12, StoreKind.TIMESTAMPED_WINDOW: 12, StoreKind.SESSION: 16}
"""How many bytes of a changelog row follow the key."""


@dataclass(frozen=True)
class Program:
    """A topology with its plan, ready to run: picklable, and independent of its host."""

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
    columns: bool = False
    blocking_threads: int = 1
    """How many threads of a process may walk shards at the same time, if the user's code waits; 1 for none."""
    is_spread: bool = False
    """Whether lanes run on several hosts, each with its own directory. Then ids of writes tell stores apart, not a lock."""
    server_key: bytes = field(default=b"", repr=False)
    """What lane servers and their clients know; empty if lanes run on one host."""
    ports: Ports = ANY_PORT
    """Where slots, lane servers and the driver listen on a cluster."""
    copies: str = ""
    """Where copies of lanes are kept, as an absolute path or a URI; empty if nowhere."""
    sub_topologies: Mapping[str, str] = field(default_factory=dict)
    """The sub-topology of each node, by the name of its first node."""

    @classmethod
    def of(cls, application_id: str, topology: Topology, plan: Plan, registry: Registry | None = None, **rest: Any) -> Program:
        """Create the program of a topology."""
        nodes = without_unread_values(bound_nodes(topology.nodes, registry, application_id))
        specs = bound_specs(topology.stores, application_id, registry)
        for store in _joined_stores(nodes, specs):
            specs[store] = replace(specs[store], cached=False)
        groups = {name: group[0] for group in topology.groups() for name in group}
        return cls(application_id, nodes, specs, dict(topology.global_stores), plan, sub_topologies=groups, **rest)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """All source nodes; records refer to them by index."""
        return tuple(name for name, node in self.nodes.items() if isinstance(node, SourceNode))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The stage that the records of each source enter; -1 for global tables."""
        depths = {name: number for number, stage in enumerate(self.plan.stages) for name in stage.sources}
        return tuple(depths.get(name, -1) for name in self.sources)

    @cached_property
    def exchange_source(self) -> Mapping[str, int]:
        """The index of the source that reads an exchange, by the exchange's name."""
        reads = ((code, self.nodes[name]) for code, name in enumerate(self.sources))
        return {topic: code for code, node in reads if isinstance(node, SourceNode) and node.internal for topic in node.topics}

    @cached_property
    def scattered_exchanges(self) -> Mapping[str, int]:
        """The exchanges that several stages write, as when a stream is joined with itself re-keyed; each with its first stage.

        Writes to shared stores are excluded: they have one order over all stages, that of the records that caused them.
        """
        shared = {sink for node in self.nodes.values() if isinstance(node, ProcessorNode) for _, sink in node.shared}
        stages: dict[str, list[int]] = {}
        for number, stage in enumerate(self.plan.stages):
            for node in map(self.nodes.__getitem__, stage.nodes):
                if isinstance(node, SinkNode) and node.internal and isinstance(node.topic, str) and node.name not in shared:
                    stages.setdefault(node.topic, []).append(number)
        return {topic: found[0] for topic, found in stages.items() if len(found) > 1}

    @cached_property
    def logged_stores(self) -> tuple[str, ...]:
        """The stores with a changelog; global ones have their topic instead."""
        return tuple(name for name, spec in self.specs.items() if spec.logged and name not in self.global_stores)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics that rows refer to by index: the lanes' topic, the changelogs, those of sinks."""
        changelogs = [changelog_topic(self.application_id, store) for store in self.logged_stores]
        sinks = [node.topic for node in self.nodes.values() if isinstance(node, SinkNode) and not node.internal]
        fixed = [topic for topic in sinks if isinstance(topic, str)]
        return (lanes_topic(self.application_id), *changelogs, *dict.fromkeys(fixed))

    @cached_property
    def topic_codes(self) -> Mapping[str, int]:
        """The index of each topic in `topics`."""
        return {topic: code for code, topic in enumerate(self.topics)}

    @cached_property
    def key_of_source(self) -> Mapping[int, Serde[Any]]:
        """The key serde of each source of topics, by its index; keys in exchanges are always our own encoding."""
        nodes = ((code, self.nodes[name]) for code, name in enumerate(self.sources))
        return {code: node.key for code, node in nodes if isinstance(node, SourceNode) and not node.internal}

    @cached_property
    def routes_by_value(self) -> bool:
        """Whether a key has to be decoded to find its shard, because its serde decodes different bytes to the same key."""
        return any(_is_routed_by_value(self.nodes[name]) for stage in self.plan.stages for name in stage.sources)

    @cached_property
    def watermarks(self) -> Mapping[str, Watermark]:
        """The watermark strategies by the name of their source."""
        sources = (self.nodes[name] for name in self.sources)
        return {node.name: node.watermark for node in sources if isinstance(node, SourceNode) and node.watermark is not None}

    @cached_property
    def watermarked(self) -> frozenset[str]:
        """The nodes whose time is the application's watermark."""
        return watermarked_nodes(self.nodes)

    def watermark_of(self, topic: str) -> Watermark | None:
        """Return the watermark strategy of the source that reads a topic; None if it has none."""
        for name in self.sources:
            node = self.nodes[name]
            assert isinstance(node, SourceNode)
            if node.reads(topic):
                return node.watermark
        return None

    @property
    def has_watermarks(self) -> bool:
        """Whether any source declares a watermark."""
        return bool(self.watermarks)

    @cached_property
    def extracts_timestamps(self) -> bool:
        """Whether a source takes event times or watermarks from anything but the record's timestamp."""
        sources = (self.nodes[name] for name in self.sources)
        extracts = any(isinstance(node, SourceNode) and node.timestamp is not None for node in sources)
        return extracts or any(strategy.function is not None for strategy in self.watermarks.values())

    @cached_property
    def orders_writes(self) -> bool:
        """Whether records of different lanes write the same keys, so that their order matters."""
        return any(spec.takes_writes for spec in self.specs.values())

    @cached_property
    def serial_exchanges(self) -> frozenset[str]:
        """The exchanges into atomic sections: all their rows go to one lane."""
        return frozenset(topic for stage in self.plan.stages if stage.is_serial for topic in stage.reads)

    def needs_lanes(self, stage: int) -> bool:
        """Whether a stage has to run on the lanes of its keys: it has state, or a processor may have punctuators."""
        names = self.plan.stages[stage].nodes
        operators = [node.operator for name in names if isinstance(node := self.nodes[name], ProcessorNode)]
        return self.plan.stages[stage].is_keyed or any(operator.runs_user_objects for operator in operators)

    @cached_property
    def waits_for_the_clock(self) -> bool:
        """Whether something may be due without new input: timers, schedules, or punctuators of processors."""
        processors = any(isinstance(node, ProcessorNode) and node.operator.runs_user_objects for node in self.nodes.values())
        return processors or any(spec.kind is StoreKind.TIMERS for spec in self.specs.values())

    def may_wait(self, stage: int) -> bool:
        """Whether something in a stage may be due without a record: timers, punctuators, or what waits for watermarks."""
        nodes = [node for name in self.plan.stages[stage].nodes if isinstance(node := self.nodes[name], ProcessorNode)]
        if any(node.operator.runs_user_objects for node in nodes):
            return True
        kinds = {self.specs[store].kind for store in self.plan.stages[stage].stores}
        return StoreKind.TIMERS in kinds or (bool(kinds) and not self.watermarked.isdisjoint(node.name for node in nodes))

    def shard_finder(self, store: str) -> Callable[[bytes], int]:
        """Return a function that finds the shard of a store's key, by the key's bytes; see `keeps_own_keys`."""
        spec, shards = self.specs[store], self.shards
        record = record_key(spec, _routing_key(self, store))
        head = b"\x00" if spec.kind is StoreKind.VERSIONED else b""
        tail = bytes(_TIMES_BEHIND_KEY.get(spec.kind, 0))
        return lambda key: shard_of(record(head + key + tail), shards)

    def keeps_own_keys(self, store: str) -> bool:
        """Whether a user's processor may store arbitrary keys: any shard may have put such a key."""
        nodes = (node for node in self.nodes.values() if isinstance(node, ProcessorNode) and store in node.stores)
        return any(node.operator.runs_user_objects for node in nodes)


def keeps_processors(program: Program) -> bool:
    """Whether a user's processor stays with its shard from epoch to epoch; one of an atomic section does not."""
    operators = [node.operator for node in program.nodes.values() if isinstance(node, ProcessorNode)]
    return any(operator.runs_user_objects and not operator.runs_serially for operator in operators)


def has_lanes(program: Program) -> bool:
    """Whether anything is stored: by a stage, or in a changelog."""
    return bool(program.logged_stores) or any(program.needs_lanes(stage) for stage in range(len(program.plan.stages)))


def _is_routed_by_value(node: Node) -> bool:
    if not isinstance(node, SourceNode) or node.internal:
        return False
    return not (node.key.is_canonical or isinstance(node.key, String))  # text is decoded only if its bytes are not UTF-8


def _routing_key(program: Program, store: str) -> Any:
    """Return the serde of the keys by which records are routed to a store's lanes."""
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
    """Return the stores of tables that are joined with each other.

    They are not cached: if both sides change in one epoch, the side that is flushed first would be joined with a row that the
    other has not emitted yet, and if both sides delete a key, the join would see neither deletion.
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


TopicRecord = tuple[str, int, int, bytes | None, bytes | None, int, Headers]
"""Topic, partition, offset, key, value, timestamp and headers."""

ReadRecords = Callable[[Mapping[Partition, int], Mapping[Partition, int]], Iterable[TopicRecord]]
"""`read(positions, ends)`: the records in between."""


@dataclass(frozen=True)
class GlobalTopics:
    """The topics of global tables as of an epoch: where they begin and end, and what else decides whether to read them again.

    `read` reads their records, in any process.
    """

    begins: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    identity: str
    tombstones_ms: int | None
    read: ReadRecords


@dataclass(frozen=True)
class Placement:
    """Where the lanes of an epoch are, if they run on several hosts.

    `heads` are the ids of the writes that the epoch continues, by lane, `servers` the addresses of their lane servers, and
    `global_topics` what each host reads into its global tables.
    """

    heads: Mapping[int, str] | None = None
    servers: Mapping[int, tuple[str, int]] | None = None
    global_topics: GlobalTopics | None = None


@dataclass(frozen=True)
class Attempt:
    """An attempt at an epoch: tasks of one with a lower `number`, in the same start, must no longer open stores.

    `most_bytes` limits the input and the output of a task (0: no limit).
    """

    number: int = 0
    most_bytes: int = 0


@dataclass(frozen=True)
class Epoch:
    """One epoch: its number, the epoch before it, its wall-clock time, and the origins of its records.

    Lanes must be at `previous`. `committed` is the last epoch that was known to be committed when this one began, if it was not
    `previous`: the epochs in between are in flight, and lanes keep what it takes to roll them back.
    `high_times` are the highest event times of each origin before this epoch, `watermarks` those of origins whose source declares
    one. `watermark` is the application's as of the last commit (None without one), which lanes learn now; `watermark_before` is
    the one that they know. `partitions` are partition counts by topic, for partitioners. Lanes save `mark`, if given. If
    `is_sampled`, nodes are timed and stores measured.
    """

    number: int
    previous: int
    wall_clock: int
    origins: tuple[tuple[str, int], ...] = ()
    high_times: tuple[int, ...] = ()
    partitions: Mapping[str, int] | None = None
    mark: Mark | None = None
    watermark: int | None = None
    watermarks: tuple[int, ...] = ()
    watermark_before: int = NO_TIMESTAMP
    is_sampled: bool = False
    committed: int | None = None
    placement: Placement = Placement()
    attempt: Attempt = Attempt()

    @property
    def last_committed(self) -> int:
        """The last epoch that was known to be committed when this one began."""
        return self.previous if self.committed is None else self.committed

    def catalogue(self, program: Program) -> Catalogue:
        """Return what the codes in this epoch's records stand for."""
        return Catalogue(program.sources, self.origins)


def lanes_topic(application_id: str) -> str:
    """Return the name of the lanes' topic: the changelog of the shards' registers, with the topology's facts."""
    return f"{application_id}-lanes-changelog"
