"""How many shards an application has: as many as at its first start, and then as many as its widest source topic has partitions.

In Kafka Streams it would have as many tasks. So the keys of a topic with one partition share a stream time and stores, as they do
there and in the test driver. The application's own topics have as many partitions: there, later starts find the number.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

from penstock.config import Config
from penstock.epochs.program import lanes_topic
from penstock.errors import TopicError, TopologyError
from penstock.handlers import ErrorHandlers
from penstock.history.truth import Truth, program_of, refuse_no_input
from penstock.kafka.topics import Topics
from penstock.topology import Topology

_log = logging.getLogger(__name__)

_CURE = (
    "For more lanes, set shards before the first start: then keys of one partition are in several, each with a stream time and "
    "stores of its own."
)


def settled(truth: Truth, config: Config, topics: Topics) -> Config:
    """Return the settings with the number of shards, and at most as many lanes.

    Raises if they have no such number, and a topic is missing that would decide.
    """
    if config.shards is not None:
        return config
    name = lanes_topic(truth.program.application_id)
    first = topics.seen([name])
    shards, why = (first[name].partitions, "since its first start") if first else _shards_of_new(truth, config, topics)
    if config.lanes is None or config.lanes <= shards:
        return replace(config, shards=shards)
    _log.warning("lanes = %d, but %d of them run: the application has as many shards, %s. %s", config.lanes, shards, why, _CURE)
    return replace(config, lanes=shards, shards=shards)


def looking(application_id: str, topology: Topology, handlers: ErrorHandlers, config: Config, topics: Topics) -> Truth:
    """Return the requests of a start that is only looked at; it is not settled if a start would find no input, or not all."""
    truth = Truth(topology, program_of(application_id, topology, handlers, config, incarnation=""), config, topics)
    with suppress(TopicError, TopologyError):
        config = settled(truth, config, topics)
        truth = Truth(topology, program_of(application_id, topology, handlers, config, incarnation=""), config, topics)
    return truth


def _shards_of_new(truth: Truth, config: Config, topics: Topics) -> tuple[int, str]:
    """Return the number, and where it is from."""
    names = sorted(truth.source_of(truth.read_topics))
    refuse_no_input(names)
    if not config.create_topics:
        truth.existing_topics()
    found = topics.seen(names)
    widths = {name: found[name].partitions if name in found else config.topic_partitions for name in names}
    widest = max(names, key=widths.__getitem__)
    return widths[widest], f"as its widest source topic, {widest}, has partitions"
