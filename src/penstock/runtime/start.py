"""The start of an application: topics, the fence, what Kafka has committed, the lanes; then the stream from exactly there.

The order matters. `init_transactions` fences an older instance and completes or aborts its transaction, so that everything read
afterwards is committed. A standby does what comes before that, and waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from penstock import machine
from penstock.config import Config
from penstock.epochs.global_tables import GlobalTables
from penstock.handlers import ErrorHandlers
from penstock.kafka.publishers import Publisher
from penstock.kafka.topics import Topics
from penstock.observation import Recorder
from penstock.once import once
from penstock.queries import CommittedState
from penstock.runtime.beyond.deliveries import Deliveries
from penstock.runtime.beyond.table_topics import global_tables, topics_of_hosts
from penstock.runtime.fence import fence
from penstock.runtime.hosting.engine import Hosting
from penstock.runtime.hosting.followers import followed_by
from penstock.runtime.hosting.lane_restore import LaneRestore
from penstock.runtime.hosting.migrations import Migrations
from penstock.runtime.input.input_stream import InputStream
from penstock.runtime.input.opening import Inputs, Until
from penstock.runtime.instance import Instance
from penstock.runtime.loop.epochs import Bounds, Contributions, Ends, Epochs, StartingPoint
from penstock.runtime.loop.publication import facts_row
from penstock.runtime.loop.publishing import Publishing
from penstock.runtime.opening import Opened, opened
from penstock.runtime.standby.turn import RESTORED, Turn
from penstock.topology import Topology

_log = logging.getLogger(__name__)

_LOOK_MS = 10_000
"""How long a request for the topics of a running application may take."""


@dataclass(frozen=True)
class Started:
    """The parts of a started application."""

    epochs: Epochs
    input_stream: InputStream
    publisher: Publisher
    state: CommittedState
    hosting: Hosting
    deliveries: Deliveries


class Start:
    """One start of an application."""

    _tables: GlobalTables | None = None
    _publishing: Publishing | None = None

    def __init__(
        self, application_id: str, topology: Topology, handlers: ErrorHandlers, config: Config, recorder: Recorder
    ) -> None:
        self._instance = Instance.of(application_id, topology, handlers, config, recorder)
        self._turn = Turn()
        self.closers: list[Callable[[], None]] = []

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every log line of this start."""
        return self._instance.labels

    @once
    def _opened(self) -> Opened:
        """Clients, the settings of the first start, and processes: nothing that changes Kafka or files."""
        instance = self._instance
        return opened(
            instance,
            lambda: topics_of_hosts(instance, self._tables),
            lambda: None if self._publishing is None else self._publishing.ending,
            self.closers,
        )

    def stand_by(self, stop: machine.Event) -> bool:
        """Prepare, and wait until no other instance is active; return False if a stop is requested before.

        Nothing is fenced or written until then. What `run` starts afterwards can be watched by other standbys.
        """
        instance, _, topics, hosting = self._opened
        return self._turn.wait(instance, topics, hosting.engine.warm, stop, self.closers)

    def run(self, until: Until) -> Started:
        """Start. If that fails, `closers` close what was opened."""
        instance, admin, topics, hosting = self._opened
        config, program, engine = instance.config, instance.program, hosting.engine
        fenced = fence(self._opened, self._turn, self._publishes_with, self.closers)
        truth, publishing, sources = fenced.truth, fenced.publishing, fenced.sources
        lanes = LaneRestore.of(instance, engine, topics, truth, publishing.abandon)
        heads = lanes.run(fenced.committed)
        self._turn.reached(RESTORED)
        _log.info("%s runs with %s", instance.application_id, engine.whereabouts)
        fenced.home.forget_others(program.lanes)
        tables = self._tables = global_tables(instance, topics, {**sources, **fenced.internal}, self.closers)
        server_of = engine.server_of if program.is_spread else None
        state = CommittedState(program, lambda: epochs.progress.epoch, tables.snapshot, server_of=server_of)
        self.closers.append(state.close)
        deliveries = fenced.beyond.deliveries(publishing.sizes, self.closers)
        self.closers.append(deliveries.stop)
        follow = followed_by(instance, state, deliveries.after_commit, hosting, self.closers)
        publication = publishing.publication(fenced.topic_ids, self.closers)
        migrations = Migrations(program, publication, partial(facts_row, program), engine.migrate)
        inputs = Inputs(instance, topics, truth, sources)
        epochs = Epochs(
            program,
            inputs.jobs(engine),
            publication,
            StartingPoint(
                migrations.run(replace(fenced.position.start, heads=heads), truth.last_facts, fenced.known_facts),
                partitions={name: topic.partitions for name, topic in {**sources, **fenced.sinks}.items()},
                changelog_ids=fenced.committed.topic_ids,
                first_rows=facts_row(program, fenced.known_facts),
            ),
            Bounds.of(instance, inputs.limits(until), inputs.take),
            Ends(truth.changelog_ends, inputs.ends),
            Contributions(tables.refresh, tables.take_rows, follow, lanes.anew, engine.changed),
            instance.recorder,
        )
        self.closers.append(epochs.close)
        looking = Topics(admin, min(config.broker_timeout_ms, _LOOK_MS))
        input_stream = inputs.open(epochs, looking, self.closers, may_grow=until is None)
        return Started(epochs, input_stream, publishing.publisher, state, hosting, deliveries)

    def _publishes_with(self, publishing: Publishing) -> None:
        self._publishing = publishing
