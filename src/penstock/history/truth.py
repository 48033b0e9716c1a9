"""What a start reads from Kafka about an application: its topics, its position, and the state to restore lanes to.

Nothing is changed here, so that a dry run can read the same.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from penstock import machine
from penstock.config import Config
from penstock.epochs.program import Program, lanes_topic
from penstock.epochs.standing import Committed
from penstock.errors import TopicError, TopologyError
from penstock.handlers import ErrorHandlers
from penstock.history.backfilled import backfill_topic
from penstock.history.committed import (
    FACTS_PARTITION,
    LogRows,
    committed_state,
    facts_in,
    places,
    refuse_incompatible,
    refuse_incomplete_restore,
    refuse_lost_changelogs,
    refuse_state_of_lanes,
    refuse_state_without_offsets,
)
from penstock.history.past import FoundOffsets, Lost, Past, lost_input, past, refuse_lost_input
from penstock.history.progress import Progress
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings, open_consumer
from penstock.kafka.offsets import committed
from penstock.kafka.topics import TOMBSTONES_MS, InternalTopic, Topic, Topics, changelog_config
from penstock.once import once
from penstock.records import Partition, is_name
from penstock.serdes.registry.registry import Registry, RemoteSource
from penstock.state import EngineKind
from penstock.state.remote.channel import KEY_BYTES
from penstock.topology import SinkNode, SourceNode, Topology
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import TopologyFacts, convertible, facts, plan, remembered, renamed_stores

_log = logging.getLogger(__name__)


def program_of(application_id: str, topology: Topology, handlers: ErrorHandlers, config: Config, incarnation: str) -> Program:
    """Return the program that a start with these settings runs. Until they are `settled`, it has as many shards as lanes."""
    lanes = config.lanes or os.cpu_count() or 1
    shards = config.shards or lanes
    return Program.of(
        application_id,
        topology,
        plan(topology),
        _registry(config),
        lanes=min(lanes, shards),
        shards=shards,
        directory=str(config.state_dir.absolute()),
        engine=EngineKind(config.store_engine),
        incarnation=incarnation,
        handlers=handlers,
        is_traced=config.tracing,
        columns=config.columns,
        blocking_threads=config.blocking_threads,
        is_spread=config.is_spread,
        ports=config.ports,
        copies=_copies(config),
        server_key=secrets.token_bytes(KEY_BYTES) if config.is_spread else b"",
    )


def _copies(config: Config) -> str:
    """Return where copies of lanes are kept; tasks may have another working directory."""
    given = config.state_copies or ""
    return given if not given or "://" in given else str(Path(given).absolute())


def _registry(config: Config) -> Registry | None:
    """Return the schema registry of these settings. Its secrets are plain text: tasks need them, but pickling would hide them."""
    settings = config.registry_settings
    return None if settings is None else Registry(RemoteSource(settings))


@dataclass(frozen=True)
class Position:
    """The position of an application: as committed (`before`), where it continues (`start`), and the input `lost` in between."""

    before: Past | None
    start: Progress
    lost: tuple[Lost, ...] = ()


class Truth:
    """The requests of one start."""

    def __init__(self, topology: Topology, program: Program, config: Config, topics: Topics) -> None:
        self._topology = topology
        self.program = program
        self._id = program.application_id
        self._config = config
        self._topics = topics

    # ---- topics -------------------------------------------------------------------------------------------------------

    @once
    def read_topics(self) -> Mapping[str, SourceNode]:
        """The topics that are read, including global ones, each with its source; patterns as they matched at first."""
        return self.matched_topics()

    def matched_topics(self) -> dict[str, SourceNode]:
        """Return `read_topics` with patterns as they match now. The application's own topics match no pattern."""
        sources = [node for node in self.program.nodes.values() if isinstance(node, SourceNode) and not node.internal]
        found = {topic: node for node in sources for topic in node.topics}
        patterns = [node for node in sources if node.pattern is not None]
        names = {name for name in self._topics.names() if not _is_own(self._id, name)} if patterns else set()
        for node in patterns:
            found |= {name: node for name in names if node.reads(name)}
        return found

    @once
    def table_topics(self) -> frozenset[str]:
        """The application's own topics that have the rows of global tables; they are read like others."""
        nodes = self._topology.nodes
        filled = {name for name, node in nodes.items() if isinstance(node, SourceNode) and node.contents is not None}
        return frozenset(topic for topic, node in self.read_topics.items() if node.name in filled)

    @once
    def written_topics(self) -> frozenset[str]:
        """The topics with fixed names that are written, including dead-letter topics."""
        sinks = {node.topic for node in self.program.nodes.values() if isinstance(node, SinkNode) and not node.internal}
        fixed = {topic for topic in sinks if isinstance(topic, str)}
        return frozenset(fixed | self.program.handlers.dead_letter_topics() | self._topology.dead_letter_topics())

    def existing_topics(self) -> tuple[dict[str, Topic], dict[str, Topic]]:
        """Return the topics that are read, and those that are written, except its own; raises if one does not exist."""
        names, written = self.read_topics.keys() - self.table_topics, self.written_topics
        found = self._topics.describe(names | written)
        missing = sorted((names | written) - found.keys())
        if missing:
            cure = "Create them, or set create_topics; then start again."
            raise TopicError(f"Topics do not exist: {', '.join(missing)}. {cure}")
        return {name: found[name] for name in names}, {name: found[name] for name in written}

    def missing_topics(self) -> list[InternalTopic]:
        """Return the topics that are read or written by name and do not exist, except its own."""
        names = (self.read_topics.keys() - self.table_topics) | self.written_topics
        return [
            InternalTopic(name, self._config.topic_partitions) for name in sorted(names - self._topics.describe(names).keys())
        ]

    @property
    def internal_topics(self) -> list[InternalTopic]:
        """The application's own topics, with the settings they need."""
        program, shards = self.program, self.program.shards
        changelogs = [
            InternalTopic(changelog_topic(self._id, store), shards, changelog_config(program.specs[store]))
            for store in program.logged_stores
        ]
        for topic in changelogs:
            if not is_name(topic.name):
                raise TopologyError(
                    f"Topic name {topic.name!r} is too long. Shorten the application id or the name of the store."
                )
            if topic.name == lanes_topic(self._id):
                raise TopologyError(
                    f"A store cannot be named 'lanes': its changelog {topic.name!r} is the topic of the application's own "
                    f"registers. Give the store another name, or no changelog."
                )
        # One partition each: then a transaction becomes visible as a whole.
        kept = {"cleanup.policy": "compact", "delete.retention.ms": str(TOMBSTONES_MS)}
        tables = [InternalTopic(name, 1, kept) for name in sorted(self.table_topics)]
        return [InternalTopic(lanes_topic(self._id), shards, {"cleanup.policy": "compact"}), *changelogs, *tables]

    @once
    def changelogs(self) -> list[Partition]:
        """The partitions from which shards are restored: those of the stores' changelogs, and of the lanes' topic."""
        topics = [lanes_topic(self._id), *(changelog_topic(self._id, store) for store in self.program.logged_stores)]
        return [(topic, shard) for topic in topics for shard in range(self.program.shards)]

    def changelog_ends(self) -> dict[str, int]:
        """Request where the changelogs end, by `topic/partition` as in marks."""
        return places(self._topics.end_offsets(self.changelogs))

    def source_of(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the index of the source that reads each topic in epochs; global topics are not read in epochs."""
        return self.codes({topic: node for topic, node in self.read_topics.items() if topic in topics})

    def codes(self, read: Mapping[str, SourceNode]) -> dict[str, int]:
        """As `source_of`, for topics with their sources."""
        program = self.program
        own = {name: code for code, name in enumerate(program.sources) if name not in program.global_stores.values()}
        return {topic: own[node.name] for topic, node in read.items() if node.name in own}

    def partitions(self, sources: Mapping[str, Topic]) -> list[Partition]:
        """Return the partitions that epochs read."""
        refuse_no_input(self.source_of(self.read_topics))
        return [(name, number) for name in sorted(self.source_of(sources)) for number in range(sources[name].partitions)]

    # ---- the position of the application ------------------------------------------------------------------------------

    def offsets(self, partitions: Iterable[Partition]) -> FoundOffsets:
        """Return the committed offset and metadata of each partition."""
        consumer = open_consumer(consumer_settings(self._config, self._id))
        try:
            return committed(consumer, partitions, self._config.broker_timeout_ms)
        finally:
            consumer.close()

    @once
    def last_facts(self) -> TopologyFacts | None:
        """The facts of the committed topology; None if there is none."""
        rows = _facts_rows(self._id, self._config, self._topics)
        refuse_state_of_lanes(rows)
        found = facts_in(rows)
        refuse_incomplete_restore(self._id, found)
        return found

    def renamed(self, facts: TopologyFacts | None) -> None:
        """Take over facts in which stores have other names, once these are committed."""
        self.__dict__["last_facts"] = facts

    def last_topics(self) -> set[str]:
        """Return the existing topics that the last commit covered; patterns as they match now."""
        sources = [] if self.last_facts is None else self.last_facts.sources
        patterns = [re.compile(source) for source in sources if not is_name(source)]
        names = self._topics.names() if sources else set()
        return {name for name in names if name in sources or any(pattern.fullmatch(name) for pattern in patterns)}

    def position(self, partitions: list[Partition], topic_ids: Mapping[str, str]) -> Position:
        """Return the position of the application: new topics begin at the reset position of their source."""
        left = self._topics.seen(self.last_topics() - topic_ids.keys()).values()
        of_left = [(topic.name, number) for topic in left for number in range(topic.partitions)]
        patterns = {topic: node.pattern.pattern for topic, node in self.read_topics.items() if node.pattern is not None}
        own = {topic: topic_ids[topic] for topic, _ in partitions}
        before = past(self.offsets([*partitions, *of_left]), own, self.program.shards, self.last_facts, patterns)
        begins, ends = self._topics.begin_offsets(partitions), self._topics.end_offsets(partitions)
        known = before.progress if before else Progress(-1, {}, {})
        lost = lost_input(known.offsets, begins, ends)
        if self._config.on_lost_input == "fail":
            refuse_lost_input(lost)
        offsets = {**known.offsets, **{(found.topic, found.partition): found.goes_on_at for found in lost}}
        for partition in partitions:
            if before is not None and partition in before.added:
                offsets[partition] = begins[partition]
            elif partition not in offsets:
                offsets[partition] = self._reset(partition, begins[partition], ends[partition])
        return Position(before, replace(known, offsets=offsets), lost)

    def _reset(self, partition: Partition, begin: int, end: int) -> int:
        """Return where a partition without a committed offset begins."""
        node = self.read_topics[partition[0]]
        if node.reset in (None, "earliest"):
            return begin
        if node.reset == "latest":
            return end
        if node.reset == "none":
            raise TopicError(
                f"{partition[0]}-{partition[1]} has no committed offset, but its source has reset='none' ({node.line}). Use "
                f"'earliest' or 'latest', or set the offset with `penstock reset`."
            )
        return self._topics.offset_at(partition, machine.now_ms() - int(node.reset or 0), end)

    # ---- the state to restore lanes to --------------------------------------------------------------------------------

    @property
    def facts(self) -> TopologyFacts:
        """The facts of the topology on which its committed state will depend."""
        return facts(self._topology, self.program.plan.fingerprint, self.program.incarnation)

    def rows(self, begins: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[LogRows]:
        """Yield the committed rows of the application's own topics, from `begins` to `ends`."""
        return read(consumer_settings(self._config, self._id), begins, ends, self._config.broker_timeout_ms)

    def committed(self, before: Past | None) -> tuple[Committed, TopologyFacts]:
        """Return the state to restore lanes to, and the facts of all stores, past ones included."""
        begins, ends = self._topics.begin_offsets(self.changelogs), self._topics.settled_ends(self.changelogs)
        if before is None:
            refuse_state_without_offsets(self._id, self.rows(begins, ends))
        topic_ids = self._topics.identities(topic for topic, _ in self.changelogs)
        known = self.last_facts
        if before is not None and before.has_state:
            refuse_lost_changelogs(self._id, known, topic_ids, self.internal_topics, begins)
        stores = self._topology.stores
        refuse_incompatible(known, self.facts, convertible(stores), renamed_stores(stores))
        target = committed_state(before, begins, ends, machine.now_ms(), topic_ids)
        return target, remembered(known, msgspec.structs.replace(self.facts, topic_ids=topic_ids))


def refuse_no_input(topics: Collection[str]) -> None:
    """Raise if epochs read no topic."""
    if not topics:
        raise TopologyError("The topology reads no topic, but epochs are committed with offsets of their input. Read one.")


def _is_own(application_id: str, topic: str) -> bool:
    """Whether a topic is one of the application's own, of this topology or an earlier one."""
    is_named_like_it = topic.startswith(f"{application_id}-") and topic.endswith(("-changelog", "-global"))
    return is_named_like_it or topic == backfill_topic(application_id)


def committed_facts(application_id: str, config: Config, topics: Topics) -> TopologyFacts | None:
    """Return the facts of the committed topology, whatever the current settings; None if there is none."""
    return facts_in(_facts_rows(application_id, config, topics))


def _facts_rows(application_id: str, config: Config, topics: Topics) -> list[LogRows]:
    own = [(name, FACTS_PARTITION) for name in topics.describe([lanes_topic(application_id)])]
    begins, ends = topics.begin_offsets(own), topics.end_offsets(own)
    return list(read(consumer_settings(config, application_id), begins, ends, config.broker_timeout_ms))
