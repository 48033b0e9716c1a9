"""What a start has to do with systems other than Kafka: what is loaded from them, and what is delivered to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from penstock.barrier import Barrier
from penstock.config import Config
from penstock.epochs.program import Program
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings
from penstock.kafka.publishers import TransactionalPublisher
from penstock.kafka.records import RecordReader
from penstock.kafka.topics import InternalTopic, Topics
from penstock.records import Partition
from penstock.runtime.backfills import Backfills, backfill_topic
from penstock.runtime.deliveries import Deliveries, Follower
from penstock.runtime.engine import Engine
from penstock.topology import SinkNode, SourceNode, Topology


class Beyond:
    """The sources and sinks of a topology that are not topics."""

    def __init__(self, topology: Topology, program: Program, config: Config, topics: Topics) -> None:
        self._id = program.application_id
        self._program = program
        self._config = config
        self._topics = topics
        self._sources: list[SourceNode] = []
        self._sinks: list[SinkNode] = []
        for name, node in topology.nodes.items():
            bound = program.nodes[name]  # its serdes are ready to use
            if isinstance(node, SourceNode) and isinstance(bound, SourceNode) and node.backfill is not None:
                self._sources.append(replace(bound, backfill=node.backfill))
            if isinstance(node, SinkNode) and isinstance(bound, SinkNode) and node.target is not None:
                self._sinks.append(replace(bound, target=node.target))

    @property
    def own_topics(self) -> list[InternalTopic]:
        """The topic that has the progress of backfills, if there are any."""
        return [InternalTopic(backfill_topic(self._id), 1, {"cleanup.policy": "compact"})] if self._sources else []

    def load(self, engine: Engine, sizes: Sequence[int]) -> None:
        """Load what sources have outside of Kafka, unless that is done; `sizes` are size limits of records."""
        if not self._sources:
            return
        config = self._config
        publisher = TransactionalPublisher(config, f"{self._id}-backfill", self._id, self._program.topics, sizes)
        publisher.start()  # before the progress is read: then an earlier instance cannot advance it any more
        with closing(publisher):
            backfills = Backfills(self._sources, backfill_topic(self._id), self._progress())
            if not backfills.are_complete:
                spark = engine.require_spark()
                barrier = Barrier(publisher, config.broker_timeout_ms)
                backfills.load(lambda backfill, skip: spark.rows(backfill.read, backfill.order_by, skip), barrier)

    def _progress(self) -> Iterator[tuple[bytes, bytes | None]]:
        kept, topics, config = [(backfill_topic(self._id), 0)], self._topics, self._config
        begins, ends = topics.begin_offsets(kept), topics.end_offsets(kept)
        for _, _, keys, values in read(consumer_settings(config, self._id), begins, ends, config.broker_timeout_ms):
            yield from zip(keys, values, strict=True)

    def deliveries(self) -> Deliveries:
        """Return what delivers topics to other systems; it is not started yet."""
        config, topics = self._config, self._topics

        def partitions(topic: str) -> Sequence[Partition]:
            return [(topic, number) for number in range(topics.describe([topic])[topic].partitions)]

        def reader() -> RecordReader:
            return RecordReader(consumer_settings(config, self._id), config.broker_timeout_ms)

        return Deliveries(self._id, self._sinks, Follower(partitions, topics.begin_offsets, topics.end_offsets, reader))
