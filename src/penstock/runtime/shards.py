"""How many shards an application has: as many as at its first start, and then as many as its widest source topic has partitions.

In Kafka Streams it would have as many tasks. So the keys of a topic with one partition share a stream time and stores, as they do
there and in the test driver. The application's own topics have as many partitions: there, later starts find the number.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from penstock.config import Config
from penstock.epochs.program import lanes_topic
from penstock.errors import ConfigError, TopicError, TopologyError
from penstock.handlers import ErrorHandlers
from penstock.kafka.topics import Topics
from penstock.runtime.truth import Truth, program_of, refuse_no_input
from penstock.topology import Topology


def settled(truth: Truth, config: Config, topics: Topics) -> Config:
    """Return the settings with the number of shards. Raises if they have none, and a topic is missing that would decide."""
    if config.shards is not None:
        return config
    name = lanes_topic(truth.program.application_id)
    first = topics.seen([name])
    return replace(config, shards=first[name].partitions if first else _shards_of_new(truth, config, topics))


def looking(application_id: str, topology: Topology, handlers: ErrorHandlers, config: Config, topics: Topics) -> Truth:
    """Return the requests of a start that is only looked at; it is not settled if a start would find no input, or not all."""
    truth = Truth(topology, program_of(application_id, topology, handlers, config, incarnation=""), config, topics)
    with suppress(TopicError, TopologyError):
        config = settled(truth, config, topics)
        truth = Truth(topology, program_of(application_id, topology, handlers, config, incarnation=""), config, topics)
    return truth


def _shards_of_new(truth: Truth, config: Config, topics: Topics) -> int:
    names = sorted(truth.source_of(truth.read_topics))
    refuse_no_input(names)
    if not config.create_topics:
        truth.existing_topics()
    found = topics.seen(names)
    widths = {name: found[name].partitions if name in found else config.topic_partitions for name in names}
    widest = max(names, key=widths.__getitem__)
    shards = widths[widest]
    if config.lanes is not None and config.lanes > shards:
        has = "has" if widest in found else "will be created with topic_partitions ="
        raise ConfigError(
            f"lanes: {config.lanes} lanes cannot share {shards} shards: each lane needs at least one. A new application has as "
            f"many shards as its widest source topic has partitions, and {widest!r} {has} {shards}. Set lanes to {shards} or "
            f"less, or leave it out; or give the topic more partitions; or set shards to {config.lanes} or more: then keys of "
            f"one partition are in several shards, each with a stream time and stores of its own."
        )
    return shards
