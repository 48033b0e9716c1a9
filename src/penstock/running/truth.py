"""What Kafka knows about an application, as a start asks for it: its topics, where it stands, what its lanes are brought to.

Nothing is changed here: who only wants to know what a start would do asks the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from penstock.config import Config
from penstock.epochs.program import Program, changelog_topic, lanes_topic
from penstock.epochs.restoring import Committed
from penstock.errors import TopicError, TopologyError
from penstock.handlers import ErrorHandlers
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings, open_consumer
from penstock.kafka.offsets import committed
from penstock.kafka.topics import InternalTopic, Topic, Topics, changelog_config
from penstock.plan import TopologyFacts, facts, plan, remembered
from penstock.records import is_name
from penstock.running.committed import (
    FACTS_PARTITION,
    FoundOffsets,
    LanesLog,
    Past,
    committed_state,
    facts_in,
    lanes_log,
    past,
    refuse_incompatible,
    refuse_lost_records,
    refuse_state_without_offsets,
)
from penstock.running.epochs import Progress
from penstock.running.taking import Partition
from penstock.state import EngineKind
from penstock.topology import SinkNode, SourceNode, Topology


def program_of(application_id: str, topology: Topology, handlers: ErrorHandlers, config: Config, incarnation: str) -> Program:
    """The program that a start with these settings runs."""
    return Program.of(
        application_id,
        topology,
        plan(topology),
        lanes=config.lanes or os.cpu_count() or 1,
        shards=config.shards,
        directory=str(config.state_dir.absolute()),
        engine=EngineKind(config.store_engine),
        incarnation=incarnation,
        handlers=handlers,
        is_traced=config.tracing,
    )


class Truth:
    """The questions of one start."""

    def __init__(self, topology: Topology, program: Program, config: Config, topics: Topics) -> None:
        self._topology = topology
        self._program = program
        self._id = program.application_id
        self._config = config
        self._topics = topics

    # ---- topics -------------------------------------------------------------------------------------------------------

    @cached_property
    def read_topics(self) -> Mapping[str, SourceNode]:
        """The topics that are read, global ones too, each with its source; a pattern stands for what it matches now."""
        sources = [node for node in self._program.nodes.values() if isinstance(node, SourceNode) and not node.internal]
        found = {topic: node for node in sources for topic in node.topics}
        for node in sources:
            if node.pattern is not None:
                found |= {topic: node for topic in self._topics.names() if node.pattern.fullmatch(topic)}
        return found

    @cached_property
    def written_topics(self) -> frozenset[str]:
        """The topics that are known to be written to, those of dead letters too."""
        sinks = {node.topic for node in self._program.nodes.values() if isinstance(node, SinkNode) and not node.internal}
        fixed = {topic for topic in sinks if isinstance(topic, str)}
        return frozenset(fixed | self._program.handlers.dead_letter_topics() | self._topology.dead_letter_topics())

    def existing_topics(self) -> tuple[dict[str, Topic], dict[str, Topic]]:
        """Topics that are read, and topics that are written to; all have to be there."""
        names, written = self.read_topics.keys(), self.written_topics
        found = self._topics.describe(names | written)
        missing = sorted((names | written) - found.keys())
        if missing:
            raise TopicError(f"topics are missing: {', '.join(missing)}. Create them, then start again")
        return {name: found[name] for name in names}, {name: found[name] for name in written}

    @property
    def internal_topics(self) -> list[InternalTopic]:
        """The application's own topics, as they have to be."""
        program, shards = self._program, self._config.shards
        changelogs = [
            InternalTopic(changelog_topic(self._id, store), shards, changelog_config(program.specs[store]))
            for store in program.logged_stores
        ]
        for topic in changelogs:
            if not is_name(topic.name):
                raise TopologyError(
                    f"{topic.name!r} is too long for a topic's name; shorten the application's id, or the store's"
                )
        return [InternalTopic(lanes_topic(self._id), shards, {"cleanup.policy": "compact"}), *changelogs]

    @cached_property
    def changelogs(self) -> list[Partition]:
        """The partitions of the stores' changelogs."""
        shards = range(self._config.shards)
        return [(changelog_topic(self._id, store), shard) for store in self._program.logged_stores for shard in shards]

    def source_of(self, topics: Iterable[str]) -> dict[str, int]:
        """Which source reads a topic, by its index; global ones are not read in epochs."""
        program = self._program
        own = {name: code for code, name in enumerate(program.sources) if name not in program.global_stores.values()}
        return {topic: own[node.name] for topic, node in self.read_topics.items() if topic in topics and node.name in own}

    def partitions(self, sources: Mapping[str, Topic]) -> list[Partition]:
        """The partitions that epochs read."""
        own = self.source_of(sources)
        if not own:
            raise TopologyError("the topology reads no topic: epochs are committed with the offsets of what is read. Read one")
        return [(name, number) for name in sorted(own) for number in range(sources[name].partitions)]

    # ---- where the application stands ---------------------------------------------------------------------------------

    def offsets(self, partitions: Iterable[Partition]) -> FoundOffsets:
        """What the group has committed of each partition."""
        consumer = open_consumer(consumer_settings(self._config, self._id))
        try:
            return committed(consumer, partitions, self._config.broker_timeout_ms)
        finally:
            consumer.close()

    def position(self, partitions: list[Partition], topic_ids: Mapping[str, str]) -> tuple[Past | None, Progress]:
        """Where the application stands, and where it goes on: topics that are new begin where their source says."""
        before = past(self.offsets(partitions), topic_ids, self._config.shards)
        begins, ends = self._topics.begin_offsets(partitions), self._topics.end_offsets(partitions)
        known = before.progress if before else Progress(-1, {}, {})
        refuse_lost_records(known, begins, ends)
        offsets = dict(known.offsets)
        for partition in partitions:
            if partition not in offsets:
                offsets[partition] = self._reset(partition, begins[partition], ends[partition])
        return before, replace(known, offsets=offsets)

    def _reset(self, partition: Partition, begin: int, end: int) -> int:
        """Where a partition without a committed offset begins."""
        node = self.read_topics[partition[0]]
        if node.reset in (None, "earliest"):
            return begin
        if node.reset == "latest":
            return end
        if node.reset == "none":
            raise TopicError(
                f"{partition[0]}-{partition[1]} has no committed offset, and its source says reset='none' ({node.line})"
            )
        return self._topics.offset_at(partition, int(time.time() * 1000) - int(node.reset or 0), end)

    # ---- what lanes are brought to ------------------------------------------------------------------------------------

    @property
    def facts(self) -> TopologyFacts:
        """What committed state would depend on."""
        return facts(self._topology, self._program.plan.fingerprint)

    def committed(self, before: Past | None) -> tuple[Committed, TopologyFacts]:
        """What lanes are brought to, and what is known about all stores there ever were."""
        lanes, shards = self._program.lanes, self._config.shards
        changelogs, own = self.changelogs, [(lanes_topic(self._id), shard) for shard in range(shards)]
        begins, ends = self._topics.begin_offsets([*changelogs, *own]), self._topics.end_offsets([*changelogs, *own])
        if before is None:
            refuse_state_without_offsets(self._id, begins, ends)
        log = self.lanes_log(_only(begins, own), _only(ends, own), before.lanes if before else lanes)
        refuse_incompatible(log.facts, self.facts)
        now = int(time.time() * 1000)
        told = committed_state(before, log, lanes, shards, _only(begins, changelogs), _only(ends, changelogs), now)
        return told, remembered(log.facts, self.facts)

    def lanes_log(self, begins: Mapping[Partition, int], ends: Mapping[Partition, int], lanes: int) -> LanesLog:
        """What the lanes' topic holds between these offsets; `lanes` is how many there were."""
        rows = read(consumer_settings(self._config, self._id), begins, ends, self._config.broker_timeout_ms)
        return lanes_log(self._id, rows, lanes, self._config.shards)


def committed_facts(application_id: str, config: Config, topics: Topics) -> TopologyFacts | None:
    """What is known about the topology that was committed last, whatever the settings are now; None if there was none."""
    own = [(name, FACTS_PARTITION) for name in topics.describe([lanes_topic(application_id)])]
    begins, ends = topics.begin_offsets(own), topics.end_offsets(own)
    return facts_in(read(consumer_settings(config, application_id), begins, ends, config.broker_timeout_ms))


def _only(offsets: Mapping[Partition, int], partitions: Iterable[Partition]) -> dict[Partition, int]:
    return {partition: offsets[partition] for partition in partitions}
