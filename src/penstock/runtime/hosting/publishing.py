"""Who publishes the epochs of an application: the driver's own producer, or one that shares its transactions with executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.config import Config
from penstock.engines.exchanging import Ending
from penstock.epochs.program import Program
from penstock.kafka.clients import largest_record
from penstock.kafka.publishers import Publisher, publisher_of
from penstock.kafka.statistics import OnStatistics
from penstock.kafka.topics import Topic


def new_publisher(
    config: Config,
    program: Program,
    written: Mapping[str, Topic],
    sizes: Sequence[int],
    on_statistics: OnStatistics,
) -> tuple[Publisher, Ending | None]:
    """Return the publisher, and how executors write, if they do.

    `written` are the topics that it writes to, `sizes` the size limits of records.
    """
    if not config.executors_write:
        return publisher_of(config, program.application_id, program.topics, sizes, on_statistics), None
    from penstock.engines.writing import shared_publisher  # noqa: PLC0415 - loads another Kafka client

    largest = largest_record(config, sizes)
    limits = {name: min(topic.max_message_bytes, largest) for name, topic in written.items()}
    return shared_publisher(config, program, limits)
