"""How an application starts: topics, the fence, the truth in Kafka, the lanes; then the stream from exactly there.

The order matters. `init_transactions` comes first: it fences an older instance and settles its transaction, so that what is
read afterwards is what is committed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.barrier import Barrier
from penstock.config import Config, Guarantee
from penstock.epochs.home import Home
from penstock.epochs.program import Program, changelog_topic, lanes_topic
from penstock.epochs.restoring import Committed
from penstock.epochs.wire import Kind, out_rows
from penstock.errors import BrokerError, ConfigError, StateError, TopicError, TopologyError
from penstock.handlers import ErrorHandlers
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings, open_admin, open_consumer, spark_options
from penstock.kafka.offsets import committed, refuse_members
from penstock.kafka.preflight import Preflight
from penstock.kafka.publishers import AtLeastOncePublisher, TransactionalPublisher
from penstock.kafka.records import RecordReader
from penstock.kafka.topics import InternalTopic, Topic, Topics, changelog_config
from penstock.observing import Recorder
from penstock.plan import TopologyFacts, encode_facts, facts, plan, remembered
from penstock.running.committed import (
    TOPOLOGY,
    Past,
    committed_state,
    lanes_log,
    past,
    places,
    refuse_incompatible,
    refuse_lost_records,
)
from penstock.running.epochs import Epochs, Progress, told_of_phases
from penstock.running.global_tables import GlobalTables
from penstock.running.restore_progress import RestoreProgress
from penstock.running.taking import Partition
from penstock.spark.job import EpochJobs
from penstock.spark.restore import restore
from penstock.spark.session import SparkSession, has_session, open_session
from penstock.spark.stream import EpochStream
from penstock.state import EngineKind
from penstock.topology import SinkNode, SourceNode, Topology

_log = logging.getLogger(__name__)

_ENDS_EVERY_S = 2.0

Publisher = TransactionalPublisher | AtLeastOncePublisher
Until = str | Mapping[Partition, int] | None
"""Where a bounded run ends: `"latest"` (what is there at the start), or offsets; None for never."""


@dataclass(frozen=True)
class Started:
    """What a start leaves running."""

    epochs: Epochs
    stream: EpochStream
    publisher: Publisher


class Starting:
    """One start of an application."""

    def __init__(
        self, application_id: str, topology: Topology, handlers: ErrorHandlers, config: Config, recorder: Recorder
    ) -> None:
        self._id = application_id
        self._topology = topology
        self._handlers = handlers
        self._config = config
        self._recorder = recorder
        self._plan = plan(topology)
        self._lanes = config.lanes or os.cpu_count() or 1
        self._incarnation = uuid.uuid4().hex
        self.closers: list[Callable[[], None]] = []

    def run(self, until: Until) -> Started:
        """Start; what is open when something fails is in `closers`."""
        config = self._config
        opening = self._opening_session()
        admin = open_admin(config)
        topics = Topics(admin, config.broker_timeout_ms)
        program = self._program()
        sources, others = self._existing_topics(topics, program)
        internal = topics.ensure(self._internal_topics(program), config.replication_factor)
        limits = {name: topic.max_message_bytes for name, topic in {**sources, **others, **internal}.items()}
        publisher = self._publisher(program, limits)
        publisher.start()
        self.closers.append(publisher.close)
        home = Home(program.directory, self._id)
        home.take_over(program.incarnation)
        self.closers.append(lambda: home.let_go(program.incarnation))
        partitions = self._partitions(program, sources)
        before, start = self._position(topics, partitions, {name: topic.topic_id for name, topic in sources.items()})
        refuse_members(admin, self._id, config.broker_timeout_ms)
        told, changelogs, known_facts = self._committed(topics, program, before)
        session = opening.result()
        jobs = EpochJobs(session, program, self._source_of(program, sources), self._source_options())
        self._restore(session, jobs, program, told)
        home.forget_others(self._lanes)
        tables = self._global_tables(program, topics, sources)
        tables.refresh(at_once=True)
        preflight = Preflight(program.topics, limits, min(limits.values(), default=1_000_000), self._handlers.production)
        epochs = Epochs(
            program,
            jobs,
            Barrier(
                publisher,
                config.broker_timeout_ms,
                on_phase=told_of_phases(self._recorder),
                on_retry=self._recorder.commit_retried,
            ),
            start,
            small=config.small_epoch_records,
            most=config.max_epoch_records,
            partitions={name: topic.partitions for name, topic in {**sources, **others}.items()},
            topic_ids={name: topic.topic_id for name, topic in sources.items()},
            changelog_ends=lambda: places(topics.end_offsets(changelogs)),
            input_ends=lambda: topics.end_offsets(partitions),
            before_epoch=tables.refresh,
            limits=self._limits(until, topics, partitions),
            first_rows=self._facts_row(program, known_facts),
            check=preflight.check,
            recorder=self._recorder,
        )
        self._follow_ends(lambda: topics.end_offsets(partitions))
        stream = EpochStream(
            session,
            self._source_options(),
            start.offsets,
            epochs.on_batch,
            config.epoch_interval_ms,
            config.max_epoch_records,
        )
        self.closers.append(stream.stop)
        return Started(epochs, stream, publisher)

    def _opening_session(self) -> Future[SparkSession]:
        """Spark takes seconds to start, and needs nothing of what is asked of Kafka meanwhile."""
        is_shared = has_session()
        executor = ThreadPoolExecutor(1, "penstock-spark")
        opening = executor.submit(open_session, self._id, self._lanes, self._config.spark)
        executor.shutdown(wait=False)
        if not is_shared:
            self.closers.append(lambda: None if opening.exception() else opening.result().stop())
        return opening

    def _program(self) -> Program:
        return Program.of(
            self._id,
            self._topology,
            self._plan,
            lanes=self._lanes,
            shards=self._config.shards,
            directory=str(self._config.state_dir.absolute()),
            engine=EngineKind(self._config.store_engine),
            incarnation=self._incarnation,
            handlers=self._handlers,
        )

    # ---- topics -------------------------------------------------------------------------------------------------------

    def _existing_topics(self, topics: Topics, program: Program) -> tuple[dict[str, Topic], dict[str, Topic]]:
        """Source topics (global ones too), and the topics that are written to; all have to be there."""
        nodes = [node for node in self._topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
        names = {topic for node in nodes for topic in node.topics}
        for node in nodes:
            if node.pattern is not None:
                names.update(topic for topic in topics.names() if node.pattern.fullmatch(topic))
        sinks = {node.topic for node in self._topology.nodes.values() if isinstance(node, SinkNode) and not node.internal}
        written = {topic for topic in sinks if isinstance(topic, str)} | self._handlers.dead_letter_topics()
        written |= self._topology.dead_letter_topics()
        found = topics.describe(names | written)
        missing = sorted((names | written) - found.keys())
        if missing:
            raise TopicError(f"topics are missing: {', '.join(missing)}. Create them, then start again")
        return {name: found[name] for name in names}, {name: found[name] for name in written}

    def _internal_topics(self, program: Program) -> list[InternalTopic]:
        shards = self._config.shards
        changelogs = [
            InternalTopic(changelog_topic(self._id, store), shards, changelog_config(program.specs[store]))
            for store in program.logged_stores
        ]
        return [InternalTopic(lanes_topic(self._id), shards, {"cleanup.policy": "compact"}), *changelogs]

    def _source_of(self, program: Program, sources: Mapping[str, Topic]) -> dict[str, int]:
        """Which source reads a topic, by its index."""
        found = {}
        for code, name in enumerate(program.sources):
            node = program.nodes[name]
            assert isinstance(node, SourceNode)
            if node.internal or name in program.global_stores.values():
                continue
            for topic in node.topics if node.pattern is None else filter(node.pattern.fullmatch, sources):
                found[topic] = code
        return found

    def _partitions(self, program: Program, sources: Mapping[str, Topic]) -> list[Partition]:
        own = self._source_of(program, sources)
        if not own:
            raise TopologyError("the topology reads no topic: epochs are committed with the offsets of what is read. Read one")
        return [(name, number) for name in sorted(own) for number in range(sources[name].partitions)]

    # ---- the truth ----------------------------------------------------------------------------------------------------

    def _position(
        self, topics: Topics, partitions: list[Partition], topic_ids: Mapping[str, str]
    ) -> tuple[Past | None, Progress]:
        """Where the application stands, and where it goes on: topics that are new begin where their source says."""
        consumer = open_consumer(consumer_settings(self._config, self._id))
        try:
            found = committed(consumer, partitions, self._config.broker_timeout_ms)
        finally:
            consumer.close()
        before = past(found, topic_ids, self._config.shards)
        begins, ends = topics.begin_offsets(partitions), topics.end_offsets(partitions)
        known = before.progress if before else Progress(-1, {}, {})
        refuse_lost_records(known, begins, ends)
        offsets = dict(known.offsets)
        for partition in partitions:
            if partition not in offsets:
                offsets[partition] = self._reset(topics, partition, begins[partition], ends[partition])
        return before, replace(known, offsets=offsets)

    def _reset(self, topics: Topics, partition: Partition, begin: int, end: int) -> int:
        """Where a partition without a committed offset begins."""
        nodes = (node for node in self._topology.nodes.values() if isinstance(node, SourceNode))
        node = next(node for node in nodes if node.reads(partition[0]))
        if node.reset in (None, "earliest"):
            return begin
        if node.reset == "latest":
            return end
        if node.reset == "none":
            raise TopicError(
                f"{partition[0]}-{partition[1]} has no committed offset, and its source says reset='none' ({node.line})"
            )
        return topics.offset_at(partition, int(time.time() * 1000) - int(node.reset or 0), end)

    def _committed(
        self, topics: Topics, program: Program, before: Past | None
    ) -> tuple[Committed, list[Partition], TopologyFacts]:
        """What lanes are brought to, the partitions of their changelogs, and what is known about all stores there ever were."""
        shards = range(self._config.shards)
        changelogs = [(changelog_topic(self._id, store), shard) for store in program.logged_stores for shard in shards]
        own = [(lanes_topic(self._id), shard) for shard in shards]
        begins, ends = topics.begin_offsets([*changelogs, *own]), topics.end_offsets([*changelogs, *own])
        if before is None and any(ends[place] > begins[place] for place in [*changelogs, *own]):
            raise StateError(
                f"the group {self._id!r} has no committed offsets, but its changelogs are not empty: the offsets have expired "
                f"or were deleted. Reset the application, or give it another id"
            )
        settings = consumer_settings(self._config, self._id)
        rows = read(settings, _only(begins, own), _only(ends, own), self._config.broker_timeout_ms)
        log = lanes_log(self._id, rows, before.lanes if before else self._lanes, self._config.shards)
        refuse_incompatible(log.facts, self._facts())
        now = int(time.time() * 1000)
        known = committed_state(
            before, log, self._lanes, self._config.shards, _only(begins, changelogs), _only(ends, changelogs), now
        )
        return known, changelogs, remembered(log.facts, self._facts())

    def _facts(self) -> TopologyFacts:
        return facts(self._topology, self._plan.fingerprint)

    def _facts_row(self, program: Program, known: TopologyFacts) -> pa.Table:
        """The topology's facts, committed with the first epoch of every start."""
        code = program.topic_codes[lanes_topic(self._id)]
        return out_rows(Kind.CHANGELOG, code, 0, int(time.time() * 1000), TOPOLOGY, encode_facts(known))

    # ---- lanes and epochs ---------------------------------------------------------------------------------------------

    def _publisher(self, program: Program, limits: Mapping[str, int]) -> Publisher:
        config = self._config
        if config.guarantee is Guarantee.EXACTLY_ONCE:
            return TransactionalPublisher(config, self._id, self._id, program.topics, limits.values())
        return AtLeastOncePublisher(config, self._id, program.topics, limits.values())

    def _restore(self, session: SparkSession, jobs: EpochJobs, program: Program, told: Committed) -> None:
        if not program.logged_stores and not any(program.needs_lanes(stage) for stage in range(len(program.plan.stages))):
            self._recorder.restored()
            return
        settings = consumer_settings(self._config, self._id)
        timeout = self._config.broker_timeout_ms
        progress = RestoreProgress()

        def heard(left: Mapping[int, int]) -> None:
            progress(left)
            self._recorder.restoring(left)

        began = time.monotonic()
        restored = restore(
            session,
            jobs.broadcast,
            self._lanes,
            told,
            lambda positions, ends: read(settings, positions, ends, timeout),  # type: ignore[arg-type, return-value]
            heard,
        )
        progress.close()
        self._recorder.restored()
        rows = sum(lane.rows for lane in restored)
        kinds = ", ".join(sorted({lane.found for lane in restored}))
        _log.info("restored %d lanes (%s): %d records in %.1f s", self._lanes, kinds, rows, time.monotonic() - began)

    def _follow_ends(self, ends: Callable[[], Mapping[Partition, int]]) -> None:
        """Ask now and then where the topics end, in a thread of its own: brokers may take their time."""
        ended = threading.Event()

        def follow() -> None:
            while not ended.wait(_ENDS_EVERY_S):
                try:
                    self._recorder.saw_ends(ends())
                except BrokerError as error:
                    _log.debug("how far behind the application is cannot be told: %s", error)

        self.closers.append(ended.set)
        threading.Thread(target=follow, name=f"penstock-{self._id}-ends", daemon=True).start()

    def _global_tables(self, program: Program, topics: Topics, sources: Mapping[str, Topic]) -> GlobalTables:
        names = [topic for source in program.global_stores.values() for topic in getattr(program.nodes[source], "topics", ())]
        partitions = [(name, number) for name in names for number in range(sources[name].partitions)]
        reader = RecordReader(consumer_settings(self._config, self._id), self._config.broker_timeout_ms)
        self.closers.append(reader.close)
        return GlobalTables(program, partitions, topics.begin_offsets, topics.end_offsets, reader.read)

    def _limits(self, until: Until, topics: Topics, partitions: list[Partition]) -> Mapping[Partition, int]:
        if until is None:
            return {}
        if until == "latest":
            return topics.end_offsets(partitions)
        if isinstance(until, str):
            raise ConfigError(f"until is None, 'latest' or offsets by (topic, partition), not {until!r}")
        return dict(until)

    def _source_options(self) -> dict[str, str]:
        timeout = str(self._config.broker_timeout_ms)
        options = {
            "kafka.fetch.max.wait.ms": "10",  # with the default an epoch stalls for a second now and then
            # A task reads tens of thousands of records at once: the defaults (500, 1 MiB) doubled the time it took.
            "kafka.max.poll.records": "20000",
            "kafka.max.partition.fetch.bytes": str(8 << 20),
            "kafka.default.api.timeout.ms": timeout,
            "kafkaConsumer.pollTimeoutMs": timeout,
        }
        return {**options, **spark_options(self._config)}


def _only(offsets: Mapping[Partition, int], partitions: Iterable[Partition]) -> dict[Partition, int]:
    return {partition: offsets[partition] for partition in partitions}
