"""The fence: from here on no other instance can commit, and what Kafka has committed is known.

`init_transactions` fences an older instance and completes or aborts its transaction, so that everything read afterwards is
committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.epochs.program import Program
from penstock.epochs.standing import Committed
from penstock.epochs.state_directory import StateDirectory
from penstock.history.renames import Renames
from penstock.history.truth import Position, Truth
from penstock.kafka.offsets import refuse_members
from penstock.kafka.topics import Topic
from penstock.runtime.beyond.systems import Beyond
from penstock.runtime.input.input_stream import report_lost
from penstock.runtime.instance import Instance
from penstock.runtime.loop.publishing import Publishing
from penstock.runtime.opening import Opened
from penstock.runtime.standby.turn import FENCED, POSITION, Turn
from penstock.topology.plan import TopologyFacts

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fenced:
    """What a start has once it is the only one: what it publishes with, its topics, and what is committed."""

    truth: Truth
    publishing: Publishing
    beyond: Beyond
    home: StateDirectory
    sources: Mapping[str, Topic]
    sinks: Mapping[str, Topic]
    internal: Mapping[str, Topic]
    position: Position
    committed: Committed
    known_facts: TopologyFacts

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that are read."""
        return {name: topic.topic_id for name, topic in self.sources.items()}


def fence(opened: Opened, turn: Turn, on_publishing: Callable[[Publishing], None], closers: list[Callable[[], None]]) -> Fenced:
    """Create topics, fence other instances, and read what is committed; `closers` gets what closes what is opened."""
    instance, admin, topics, hosting = opened
    config, program = instance.config, instance.program
    truth = instance.truth(topics)
    if config.create_topics:
        topics.ensure(truth.missing_topics(), config.replication_factor)
    sources, sinks = truth.existing_topics()
    beyond = Beyond(instance, topics)
    internal = topics.ensure([*truth.internal_topics, *beyond.own_topics], config.replication_factor)
    publishing = Publishing(instance, topics, {**sinks, **internal})
    closers.append(publishing.publisher.close)
    on_publishing(publishing)
    turn.announce(instance, publishing.committer)
    turn.reached(FENCED)
    home = _occupied(program, closers)
    closers.append(beyond.load(hosting, publishing.sizes).stop)
    position = truth.position(truth.partitions(sources), {name: topic.topic_id for name, topic in sources.items()})
    turn.reached(POSITION)
    _report_changes(instance, position)
    refuse_members(admin, instance.application_id, config.broker_timeout_ms)
    if position.before is not None:
        truth.renamed(Renames(program, config, topics, publishing.committer).run(truth.last_facts, truth.facts))
    committed, known_facts = truth.committed(position.before)
    return Fenced(truth, publishing, beyond, home, sources, sinks, internal, position, committed, known_facts)


def _report_changes(instance: Instance, position: Position) -> None:
    """Log what has changed since the last commit, and report what is lost."""
    before = position.before
    if before is None:
        _log.info("first start, with %d shards: that is the most lanes, and does not change", instance.program.shards)
    for topic, epoch in before.resumed.items() if before is not None else ():
        _log.info("topic %s was last read in epoch %d: resuming where it stopped", topic, epoch)
    for topic, partition in sorted(before.added) if before is not None else ():
        _log.info("%s-%d was created after the last commit: reading it from its beginning", topic, partition)
    for lost in position.lost:
        report_lost(lost, instance.recorder)


def _occupied(program: Program, closers: list[Callable[[], None]]) -> StateDirectory:
    """Take over the directory of the stores, until the end."""
    home = StateDirectory(program.directory, program.application_id)
    home.take_over(program.incarnation)
    closers.append(home.occupy())
    closers.append(lambda: home.let_go(program.incarnation))
    return home
