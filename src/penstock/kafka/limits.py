"""What brokers and topics allow: checks at the start for what the application needs, and the size limits of records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from penstock.config import Config, Guarantee
from penstock.errors import ConfigError, PenstockError, TopicError
from penstock.kafka.topics import Topic, Topics

logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_TOPIC_BYTES = 1_048_588
"""Kafka's default for `max.message.bytes`, where neither the topic nor its broker reports a value."""

SHORTEST_OFFSET_RETENTION_MINUTES = 24 * 60
"""A group whose offsets expire sooner may lose its position overnight."""


def refusals(config: Config, broker: Mapping[str, str], written: Iterable[Topic]) -> Iterator[PenstockError]:
    """Yield the reasons why the application cannot run; `broker` has the settings of one broker that the client may read."""
    longest = int(broker.get("transaction.max.timeout.ms", config.transaction_timeout_ms))
    if config.guarantee is Guarantee.EXACTLY_ONCE and config.transaction_timeout_ms > longest:
        yield ConfigError(f"transaction_timeout: the brokers allow at most {longest} ms (their transaction.max.timeout.ms).")
    for topic in written:
        least = int(topic.config.get("min.insync.replicas", "1"))
        if least > topic.replicas:
            yield TopicError(
                f"Topic {topic.name!r} has {topic.replicas} replicas but needs {least} for every write (min.insync.replicas): "
                f"nothing can be written to it. Add replicas, or lower min.insync.replicas."
            )
        for name in ("batch.size", "producer.batch.size"):
            size = config.kafka.get(name, "")
            if size.isdecimal() and int(size) > topic.max_message_bytes:
                yield ConfigError(
                    f"kafka: {name!r} exceeds the {topic.max_message_bytes} bytes that topic {topic.name!r} accepts "
                    f"(max.message.bytes), so the broker would refuse batches. Remove the setting, or raise the topic's limit."
                )


def warnings(broker: Mapping[str, str]) -> Iterator[str]:
    """Yield warnings of what may fail later."""
    minutes = int(broker.get("offsets.retention.minutes", SHORTEST_OFFSET_RETENTION_MINUTES))
    if minutes < SHORTEST_OFFSET_RETENTION_MINUTES:
        yield (
            f"the brokers delete the offsets of a group that is down for {minutes} minutes (their offsets.retention.minutes): "
            f"after that, the application must be reset"
        )


def check_limits(config: Config, broker: Mapping[str, str], written: Iterable[Topic]) -> None:
    """Refuse settings that cannot work: raise the first reason, and log the others, and what may fail later."""
    reasons = list(refusals(config, broker, written))
    for reason in reasons[1:]:
        logger.error("%s", reason)
    for warning in warnings(broker):
        logger.warning("%s", warning)
    if reasons:
        raise reasons[0]


def default_size(broker: Mapping[str, str]) -> int:
    """The record size limit of topics that set none themselves, from the settings of a broker."""
    return int(broker.get("message.max.bytes", DEFAULT_TOPIC_BYTES))


def size_of(topics: Topics, topic: str) -> int | None:
    """The record size limit of a topic; None if it does not exist, or if the client may not read its settings."""
    try:
        found = topics.describe([topic])
    except ConfigError as error:
        logger.info("cannot read the record size limit of topic %s: %s", topic, error)
        return None
    return found[topic].max_message_bytes if topic in found else None


class SizeLimits:
    """The size limit of records by topic: the topic's own limit, or the producer's if that is smaller.

    `ask` is called for topics that are not `known`, which a record may choose; `default` applies where it returns None.
    """

    def __init__(self, known: Mapping[str, int], default: int, largest: int, ask: Callable[[str], int | None]) -> None:
        self._known = {topic: min(size, largest) for topic, size in known.items()}
        self._default = min(default, largest)
        self._largest = largest
        self._ask = ask

    def of(self, topic: str) -> int:
        """The size limit of a record for this topic."""
        limit = self._known.get(topic)
        if limit is None:
            found = self._ask(topic)
            if found is None:  # the first record may create it: ask again next time
                return self._default
            limit = self._known[topic] = min(found, self._largest)
        return limit
