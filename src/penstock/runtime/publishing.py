"""Who publishes the epochs of an application: the driver's own producer, or one that shares its transactions with executors."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.config import Config
from penstock.epochs.program import Program
from penstock.errors import ConfigError
from penstock.kafka.clients import largest_record
from penstock.kafka.publishers import Publisher, publisher_of
from penstock.kafka.statistics import OnStatistics
from penstock.kafka.topics import Topic
from penstock.runtime.engine import Engine

_log = logging.getLogger(__name__)

WRITTEN_LANES = 8
"""With up to this many lanes, one producer keeps up, and is faster: writing on executors takes one more exchange, and an epoch
ends before the next begins."""


def with_writers(config: Config) -> Config:
    """Return the settings with who writes: by default the executors of a large cluster, unless they or the brokers cannot."""
    if config.writers != "auto":
        return config
    if config.is_spread and (config.lanes or 0) > WRITTEN_LANES:
        from penstock.spark.writing import require_shared_transactions  # noqa: PLC0415 - loads another Kafka client

        try:
            spread = replace(config, writers="executors")
            require_shared_transactions(spread)
        except ConfigError as error:
            _log.info("the driver writes results and changelogs: %s", error)
        else:
            return spread
    return replace(config, writers="driver")


def new_publisher(
    config: Config,
    program: Program,
    engine: Engine,
    written: Mapping[str, Topic],
    sizes: Sequence[int],
    on_statistics: OnStatistics,
) -> Publisher:
    """Return the publisher; `written` are the topics that it writes to, `sizes` the size limits of records."""
    if not config.executors_write:
        return publisher_of(config, program.application_id, program.topics, sizes, on_statistics)
    from penstock.spark.writing import shared_publisher  # noqa: PLC0415 - loads another Kafka client

    largest = largest_record(config, sizes)
    limits = {name: min(topic.max_message_bytes, largest) for name, topic in written.items()}
    publisher, engine.require_spark().write_stage = shared_publisher(config, program, limits)
    return publisher
