"""What a start has to do with systems other than Kafka: what is loaded from them, and what is delivered to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from penstock import machine
from penstock.config import Config
from penstock.epochs.output import letters_sent
from penstock.epochs.program import Program
from penstock.epochs.wire import out
from penstock.history.backfilled import backfill_topic
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings
from penstock.kafka.commit import Committer
from penstock.kafka.publishers import AtLeastOncePublisher, TransactionalPublisher
from penstock.kafka.records import RecordReader
from penstock.kafka.topics import InternalTopic, Topic, Topics
from penstock.lanes.outbox import Row
from penstock.runtime.beyond.backfills import Backfills
from penstock.runtime.beyond.deliveries import Deliveries, Follower
from penstock.runtime.beyond.refreshes import Access, Refreshes, Table
from penstock.runtime.beyond.undelivered import Undelivered
from penstock.runtime.hosting.engine import Hosting
from penstock.runtime.instance import Instance
from penstock.topology import SinkNode, SourceNode

_log = logging.getLogger(__name__)


class Beyond:
    """The sources and sinks of a topology that are not topics."""

    def __init__(self, instance: Instance, topics: Topics) -> None:
        topology, program = instance.topology, instance.program
        self._id = program.application_id
        self._program = program
        self._config = instance.config
        self._recorder = instance.recorder
        self._topics = topics
        self._sources: list[SourceNode] = []
        self._sinks: list[SinkNode] = []
        self._tables: list[Table] = []
        store_of = {source: store for store, source in program.global_stores.items()}
        for name, node in topology.nodes.items():
            bound = program.nodes[name]  # its serdes are ready to use
            if isinstance(node, SourceNode) and isinstance(bound, SourceNode) and node.backfill is not None:
                self._sources.append(replace(bound, backfill=node.backfill))
            if isinstance(node, SourceNode) and isinstance(bound, SourceNode) and node.contents is not None:
                self._tables.append(Table(store_of[name], bound, node.contents))
            if isinstance(node, SinkNode) and isinstance(bound, SinkNode) and node.target is not None:
                self._sinks.append(replace(bound, target=node.target))

    @property
    def own_topics(self) -> list[InternalTopic]:
        """The topic that has the progress of backfills, if there are any."""
        return [InternalTopic(backfill_topic(self._id), 1, {"cleanup.policy": "compact"})] if self._sources else []

    def load(self, hosting: Hosting, sizes: Sequence[int]) -> Refreshes:
        """Load what sources and global tables have outside of Kafka; `sizes` are size limits of records.

        A backfill is loaded once. Tables are read again from time to time, until the result is stopped.
        """
        if self._sources:
            self._load_backfills(hosting, sizes)
        return self._refreshes(hosting, sizes)

    def _load_backfills(self, hosting: Hosting, sizes: Sequence[int]) -> None:
        # Before the progress is read: then an earlier instance cannot advance it any more.
        with self._committer(sizes) as committer:
            backfills = Backfills(self._sources, backfill_topic(self._id), self._entries(backfill_topic(self._id)))
            if not backfills.are_complete:
                spark = hosting.require_spark()
                backfills.load(lambda backfill, skip: spark.rows(backfill.read, backfill.order_by, skip), committer)

    def _refreshes(self, hosting: Hosting, sizes: Sequence[int]) -> Refreshes:
        access = Access(
            lambda contents: hosting.require_spark().rows_in_any_order(contents.read),
            self._entries,
            lambda: self._committer(sizes),
        )
        refreshes = Refreshes(self._id, self._tables, access, self._recorder)
        if hosting.spark is None and refreshes.are_loaded:
            for table in self._tables:
                _log.info("the global table %s keeps its rows: reading them again needs engine = spark", table.store)
        else:
            refreshes.start()
        return refreshes

    @contextmanager
    def _committer(self, sizes: Sequence[int]) -> Iterator[Committer]:
        """Yield a committer for what is loaded; from then on, earlier instances cannot load anything."""
        config = self._config
        publisher = TransactionalPublisher(config, f"{self._id}-backfill", self._id, self._program.topics, sizes)
        publisher.start()
        with closing(publisher):
            yield Committer(publisher, config.broker_timeout_ms)

    def _entries(self, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the committed keys and values of a topic of one partition."""
        kept, topics, config = [(topic, 0)], self._topics, self._config
        begins, ends = topics.begin_offsets(kept), topics.end_offsets(kept)
        for _, _, keys, values in read(consumer_settings(config, self._id), begins, ends, config.broker_timeout_ms):
            yield from zip(keys, values, strict=True)

    def deliveries(self, sizes: Sequence[int], closers: list[Callable[[], None]]) -> Deliveries:
        """Return what delivers topics to other systems; it is not started yet. `sizes` are size limits of records.

        `closers` gets what is to be called once it has stopped.
        """
        config, topics, recorder = self._config, self._topics, self._recorder

        def topic(name: str) -> Topic | None:
            return topics.seen([name]).get(name)

        def reader() -> RecordReader:
            return RecordReader(consumer_settings(config, self._id), config.broker_timeout_ms)

        follower = Follower(topic, topics.begin_offsets, topics.end_offsets, reader)
        letters = Letters(self._program, config, sizes)
        closers.append(letters.close)
        undelivered = Undelivered(self._id, self._program.handlers, letters.send, recorder.left_out.count)
        on_lost = recorder.lost_input if config.on_lost_input == "continue" else None
        return Deliveries(self._id, self._sinks, follower, undelivered, on_lost)


class Letters:
    """Writes the dead letters of deliveries, with a producer of its own that the first one opens."""

    def __init__(self, program: Program, config: Config, sizes: Sequence[int]) -> None:
        self._program = program
        self._config = config
        self._sizes = sizes
        self._writing = machine.lock()
        self._publisher: AtLeastOncePublisher | None = None

    def send(self, letter: Row) -> None:
        """Return once the letter is in its topic."""
        rows = letters_sent(self._program, [letter])
        assert rows is not None, "there is a letter"
        with self._writing:
            publisher = self._publisher or AtLeastOncePublisher(
                self._config, self._program.application_id, self._program.topics, self._sizes
            )
            self._publisher = publisher
            try:
                Committer(publisher, self._config.broker_timeout_ms).write(out(rows).combine_chunks().to_batches())
            except BaseException:
                self.close()  # the next letter has another producer
                raise

    def close(self) -> None:
        """Close the producer."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()
