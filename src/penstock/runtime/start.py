"""The start of an application: topics, the fence, what Kafka has committed, the lanes; then the stream from exactly there.

The order matters. `init_transactions` fences an older instance and completes or aborts its transaction, so that everything read
afterwards is committed. A standby does what comes before that, and waits.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from structlog.contextvars import bound_contextvars

from penstock import machine
from penstock.config import Config
from penstock.engines.exchanging import Ending
from penstock.engines.port import Engine
from penstock.epochs.global_tables import GlobalTables
from penstock.epochs.home import Home
from penstock.epochs.program import GlobalTopics, Program
from penstock.errors import ConfigError
from penstock.handlers import ErrorHandlers
from penstock.history.committed import places
from penstock.history.past import Lost, lost_input
from penstock.history.rehearsal import rehearse
from penstock.history.renames import Renames
from penstock.history.shards import settled
from penstock.history.truth import Position, Truth, program_of
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings, largest_record, reach_brokers
from penstock.kafka.commit import Barrier
from penstock.kafka.limits import SizeLimits, check_limits, default_size, size_of
from penstock.kafka.offsets import refuse_members
from penstock.kafka.preflight import Preflight
from penstock.kafka.publishers import Publisher
from penstock.kafka.records import RecordReader, read_records
from penstock.kafka.topics import Topic, Topics
from penstock.observation import Recorder, logs
from penstock.observation.spans import Tracing
from penstock.queries import CommittedState
from penstock.records import Partition
from penstock.runtime.beyond.deliveries import Deliveries
from penstock.runtime.beyond.systems import Beyond
from penstock.runtime.beyond.table_topics import global_tables
from penstock.runtime.hosting.engine import Hosting, opening_hosts
from penstock.runtime.hosting.followers import Follow, followed_by
from penstock.runtime.hosting.lane_restore import LaneRestore
from penstock.runtime.hosting.memory import default_epoch_bytes
from penstock.runtime.hosting.migrations import Migrations
from penstock.runtime.hosting.publishing import new_publisher
from penstock.runtime.hosting.set_up import TaskSetUp
from penstock.runtime.hosting.state_copies import state_copies
from penstock.runtime.input.feed import FedJobs, Feed
from penstock.runtime.input.input_stream import InputStream, report_lost
from penstock.runtime.input.inputs import InputLoop
from penstock.runtime.input.lag import follow_ends
from penstock.runtime.input.time_order import TimeOrder, is_timed
from penstock.runtime.input.topic_watch import Growth, TopicWatch
from penstock.runtime.loop.dispatcher import Take
from penstock.runtime.loop.epoch_size import TARGET_S, EpochSize
from penstock.runtime.loop.epochs import Bounds, Contributions, Ends, Epochs, StartingPoint
from penstock.runtime.loop.journal import phase_reporter
from penstock.runtime.loop.publication import Check, Publication, facts_row
from penstock.runtime.standby.announcement import Announcements, announce
from penstock.runtime.standby.beacon import Beacon
from penstock.runtime.standby.standing_by import Readiness, refuse_refused, stand_by
from penstock.runtime.standby.takeover import DETECTED, FENCED, POSITION, RESTORED, Takeover
from penstock.settings import revealed
from penstock.topology import Topology

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_log = logging.getLogger(__name__)

_LOOK_MS = 10_000
"""How long a request for the topics of a running application may take."""

OnInput = Callable[[Mapping[Partition, int]], None]
Until = str | Mapping[Partition, int] | None
"""Where a bounded run ends: `"latest"` (the end of the topics at the start), or at offsets; None for an unbounded run."""


@dataclass(frozen=True)
class Started:
    """The parts of a started application."""

    epochs: Epochs
    input_stream: InputStream
    publisher: Publisher
    state: CommittedState
    hosting: Hosting
    deliveries: Deliveries


class Prepared(NamedTuple):
    """What a start needs before it touches anything that is committed."""

    admin: AdminClient
    topics: Topics
    hosting: Hosting


class Start:
    """One start of an application."""

    _epochs: Epochs
    _tables: GlobalTables | None = None
    _ending: Ending | None = None

    def __init__(
        self, application_id: str, topology: Topology, handlers: ErrorHandlers, config: Config, recorder: Recorder
    ) -> None:
        self._id = application_id
        self._topology = topology
        self._handlers = handlers
        self._config = config
        self._recorder = recorder
        self._program = program_of(application_id, topology, handlers, config, incarnation=uuid.uuid4().hex)
        self._takeover = Takeover(machine.monotonic())
        self._beacon: Beacon | None = None
        self.closers: list[Callable[[], None]] = []

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every log line of this start."""
        return {"application": self._id, "topology": self._program.plan.fingerprint, "incarnation": self._program.incarnation}

    @cached_property
    def _prepared(self) -> Prepared:
        """Clients, the settings of the first start, and processes: nothing that changes Kafka or files."""
        hosts = opening_hosts(self._config, self._program, self._topology)
        self.closers.append(hosts.close)
        admin = reach_brokers(self._config)
        topics = Topics(admin, self._config.broker_timeout_ms)
        self._config = settled(Truth(self._topology, self._program, self._config, topics), self._config, topics)
        self._program = program_of(self._id, self._topology, self._handlers, self._config, self._program.incarnation)
        prepare = logs.worker_set_up(self._config, self.labels)
        tasks = TaskSetUp(prepare, self._patience_s, self._global_topics, lambda: self._ending)
        hosting = hosts.host(self._program, tasks)
        self.closers.append(hosting.close)
        hosting.engine.start()
        self._recorder.whereabouts = lambda: hosting.engine.whereabouts
        return Prepared(admin, topics, hosting)

    def stand_by(self, stop: machine.Event) -> bool:
        """Prepare, and wait until no other instance is active; return False if a stop is requested before.

        Nothing is fenced or written until then. What `run` starts afterwards can be watched by other standbys.
        """
        _, topics, hosting = self._prepared
        config = self._config
        host, port = config.standby_endpoint
        Beacon(host, 0).close()  # raises now, and not in the middle of a takeover, if the address is not one of this host
        plan = partial(rehearse, self._id, self._topology, self._handlers, config)
        readiness = Readiness(lambda: refuse_refused(plan()), hosting.engine.warm)
        with closing(RecordReader(consumer_settings(config, self._id), config.broker_timeout_ms)) as reader:
            announced = Announcements(self._id, topics, reader)
            gone = stand_by(announced.last, config.standby_timeout_ms / 1_000, readiness, stop)
        if gone is None:
            return False
        _log.info("%s takes over: %s", self._id, gone.why)
        self._takeover = Takeover(gone.heard)
        self._takeover.reached(DETECTED)
        self._beacon = Beacon(host, port)
        self.closers += [self._recorder.listen(self._takeover.on_epoch), self._beacon.close]
        return True

    def run(self, until: Until) -> Started:
        """Start. If that fails, `closers` close what was opened."""
        admin, topics, hosting = self._prepared
        config, program, engine = self._config, self._program, hosting.engine
        truth = Truth(self._topology, program, config, topics)
        if config.create_topics:
            topics.ensure(truth.missing_topics(), config.replication_factor)
        sources, others = truth.existing_topics()
        beyond = Beyond(self._topology, program, config, topics)
        internal = topics.ensure([*truth.internal_topics, *beyond.own_topics], config.replication_factor)
        broker = topics.broker_settings()
        written = {**others, **internal}
        check_limits(config, broker, list(written.values()))
        sizes = [default_size(broker), *(topic.max_message_bytes for topic in written.values())]
        publisher = self._publisher(sizes, written)
        barrier = self._barrier(publisher)
        self._takeover.reached(FENCED)
        home = _occupied(program, self.closers)
        self.closers.append(beyond.load(hosting, sizes, self._recorder).stop)
        partitions = truth.partitions(sources)
        topic_ids = {name: topic.topic_id for name, topic in sources.items()}
        position = truth.position(partitions, topic_ids)
        self._takeover.reached(POSITION)
        self._log_changes(position)
        refuse_members(admin, self._id, config.broker_timeout_ms)
        if position.before is not None:
            truth.last_facts = Renames(program, config, topics, barrier).run(truth.last_facts, truth.facts)
        committed, known_facts = truth.committed(position.before)
        feed = self._feed(topics)
        feed.read_too(truth.source_of(sources))
        lanes = LaneRestore(program, engine, topics, truth, self._reader_of(read), self._abandon, self._recorder)
        heads = lanes.run(committed)
        self._takeover.reached(RESTORED)
        _log.info("%s runs with %s", self._id, engine.whereabouts)
        home.forget_others(program.lanes)
        tables = self._tables = global_tables(config, program, topics, {**sources, **internal}, self.closers)
        tables.refresh(at_once=True)
        state = CommittedState(
            program, lambda: epochs.progress.epoch, tables.snapshot, server_of=engine.server_of if program.is_spread else None
        )
        self.closers.append(state.close)
        deliveries = beyond.deliveries(self._recorder, sizes, self.closers)
        self.closers.append(deliveries.stop)
        follow = followed_by(state, [deliveries.after_commit, *self._copies(program, state, engine)], hosting)
        check = self._check(program, self._size_limits(topics, written, sizes))
        publication = Publication(program, barrier, check, topic_ids)
        migrations = Migrations(program, publication, partial(facts_row, program), engine.migrate)
        epochs = self._epochs = Epochs(
            program,
            FedJobs(engine, feed),
            publication,
            StartingPoint(
                migrations.run(replace(position.start, heads=heads), truth.last_facts, known_facts),
                partitions={name: topic.partitions for name, topic in {**sources, **others}.items()},
                changelog_ids=committed.topic_ids,
                first_rows=facts_row(program, known_facts),
            ),
            self._bounds(_limits(until, topics, partitions), TimeOrder(topics.offsets_at, is_timed(program)).take),
            Ends(
                changelogs=lambda: places(topics.end_offsets(truth.changelogs)),
                inputs=lambda: topics.end_offsets(epochs.progress.offsets),
            ),
            Contributions(tables.refresh, tables.take_rows, follow, lanes.anew, engine.changed),
            self._recorder,
        )
        self.closers.append(epochs.close)
        self.closers.append(follow_ends(self._id, lambda: topics.end_offsets(epochs.progress.offsets), self._recorder))
        watched = {name: sources[name] for name in truth.source_of(sources)}
        looking = Topics(admin, min(config.broker_timeout_ms, _LOOK_MS))
        input_stream = self._input_stream(feed, epochs, looking, watched, may_grow=until is None)
        return Started(epochs, input_stream, publisher, state, hosting, deliveries)

    def _log_changes(self, position: Position) -> None:
        """Log what has changed since the last commit."""
        before = position.before
        if before is None:
            _log.info("first start, with %d shards: that is the most lanes, and does not change", self._program.shards)
        for topic, epoch in before.resumed.items() if before is not None else ():
            _log.info("topic %s was last read in epoch %d: resuming where it stopped", topic, epoch)
        for topic, partition in sorted(before.added) if before is not None else ():
            _log.info("%s-%d was created after the last commit: reading it from its beginning", topic, partition)
        for lost in position.lost:
            report_lost(lost, self._recorder)

    def _input_stream(
        self,
        feed: Feed,
        epochs: Epochs,
        topics: Topics,
        watched: Mapping[str, Topic],
        may_grow: bool,
    ) -> InputStream:
        config = self._config
        labelled = self._labelled(epochs.on_input)
        truth = Truth(self._topology, self._program, config, topics)
        interval_s, name = config.interval_s, f"penstock-{self._id}-epochs"

        def open_stream(offsets: Mapping[Partition, int]) -> InputLoop:
            source = feed.open(offsets, self._most_bytes)
            return InputLoop(source, epochs, labelled, interval_s, name)

        def look() -> Mapping[str, Topic]:
            return topics.seen(truth.codes(truth.matched_topics()))

        def find_lost(offsets: Mapping[Partition, int]) -> tuple[Lost, ...]:
            return lost_input(offsets, topics.begin_offsets(offsets), topics.end_offsets(offsets))

        def on_growth(growth: Growth) -> None:
            feed.read_too(truth.codes({name: node for name, node in truth.matched_topics().items() if name in growth.topics}))

        watch = TopicWatch(watched, look, topics.begin_offsets, may_grow)
        may_skip = config.on_lost_input == "continue"
        input_stream = InputStream(open_stream, epochs, watch, find_lost, on_growth, may_skip, self._recorder)
        self.closers.append(input_stream.stop)
        self.closers.append(watch.stop)
        watch.start(f"penstock-{self._id}-topics")
        return input_stream

    def _labelled(self, on_input: OnInput) -> OnInput:
        """Return `on_input` with the labels of this start in the log: it is called in a thread of its own."""

        def labelled(ends: Mapping[Partition, int]) -> None:
            with bound_contextvars(**self.labels):
                on_input(ends)

        return labelled

    def _feed(self, topics: Topics) -> Feed:
        on_statistics = self._recorder.clients.of("consumer")
        return Feed(self._config, self._program, lambda: topics.end_offsets(self._epochs.progress.offsets), on_statistics)

    def _global_topics(self) -> GlobalTopics | None:
        """What each host of a cluster reads into its global tables: as far as the driver has."""
        if self._tables is None or not self._program.global_stores:
            return None
        return self._tables.topics(self._reader_of(read_records))

    # ---- lanes and epochs ---------------------------------------------------------------------------------------------

    def _copies(self, program: Program, state: CommittedState, engine: Engine) -> list[Follow]:
        copies = state_copies(program, self._config.state_copy_interval_ms / 1_000, state, engine.server_of)
        self.closers.extend(each.close for each in copies)
        return [each.after_commit for each in copies]

    def _barrier(self, publisher: Publisher) -> Barrier:
        """Return what commits everything of this start; standbys know from now on where this instance is."""
        recorder, patience_ms = self._recorder, self._config.broker_timeout_ms
        barrier = Barrier(publisher, patience_ms, on_phase=phase_reporter(recorder), on_retry=recorder.commit_retried)
        if self._beacon is not None:
            announce(self._beacon.announcement(self._program.incarnation), self._id, barrier)
        return barrier

    def _check(self, program: Program, limits: SizeLimits) -> Check:
        """Return the check of rows before they are published: of their sizes; it also continues traces."""
        preflight = Preflight(program.topics, limits, self._handlers.production)
        tracing = Tracing(self.labels, program.topics)
        self.closers.append(self._recorder.listen(tracing.on_epoch))
        return (lambda rows: preflight.check(tracing.continued(rows))) if self._config.tracing else preflight.check

    @property
    def _patience_s(self) -> float:
        """How long a job may take: less than an epoch, so that there is time left to retry it with fewer records."""
        config = self._config
        most = min(config.epoch_timeout_ms, config.transaction_timeout_ms) if config.executors_write else config.epoch_timeout_ms
        return 0.8 * most / 1_000

    def _bounds(self, limits: Mapping[Partition, int], take: Take) -> Bounds:
        config = self._config
        target_s = min(TARGET_S, config.epoch_timeout_ms / 4_000, config.transaction_timeout_ms / 4_000)
        size = EpochSize(config.max_epoch_records, self._most_bytes, target_s)
        in_flight = 0 if config.executors_write else config.epochs_in_flight  # a transactional id has one transaction at a time
        return Bounds(config.small_epoch_records, size, limits, in_flight, take)

    @property
    def _most_bytes(self) -> int:
        return self._config.max_epoch_bytes or default_epoch_bytes(self._config.spark)

    def _publisher(self, sizes: Sequence[int], written: Mapping[str, Topic]) -> Publisher:
        """Return the publisher, which has fenced any other instance."""
        config, on_statistics = self._config, self._recorder.clients.of("producer")
        publisher, self._ending = new_publisher(config, self._program, written, sizes, on_statistics)
        publisher.start()
        self.closers.append(publisher.close)
        return publisher

    def _abandon(self) -> None:
        """Abort the transaction that executors write in, if there is one."""
        if self._ending is not None:
            self._ending.abandon()

    def _size_limits(self, topics: Topics, written: Mapping[str, Topic], sizes: Sequence[int]) -> SizeLimits:
        """Return the size limits of records; the first of `sizes` is the brokers' default."""
        known = {name: topic.max_message_bytes for name, topic in written.items()}
        return SizeLimits(known, sizes[0], largest_record(self._config, sizes), lambda topic: size_of(topics, topic))

    def _reader_of(self, read: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function by which tasks read from positions to ends: `read`, with its settings."""
        settings = revealed(consumer_settings(self._config, self._id))  # tasks need them, but pickling would hide secrets
        timeout = self._config.broker_timeout_ms
        return lambda positions, ends: read(settings, positions, ends, timeout)


def _limits(until: Until, topics: Topics, partitions: list[Partition]) -> Mapping[Partition, int]:
    if until is None:
        return {}
    if until == "latest":
        return topics.end_offsets(partitions)
    if isinstance(until, str):
        raise ConfigError(f"Invalid until={until!r}: use None, 'latest' or offsets by (topic, partition).")
    return dict(until)


def _occupied(program: Program, closers: list[Callable[[], None]]) -> Home:
    """Take over the directory of the stores, until the end."""
    home = Home(program.directory, program.application_id)
    home.take_over(program.incarnation)
    closers.append(home.occupy())
    closers.append(lambda: home.let_go(program.incarnation))
    return home
