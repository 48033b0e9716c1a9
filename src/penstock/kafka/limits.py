"""What brokers and topics allow: what the application cannot do without, asked at the start, and how large records may be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from penstock.config import Config, Guarantee
from penstock.errors import ConfigError, PenstockError, TopicError
from penstock.kafka.topics import Topic, Topics

logger = logging.getLogger(__name__)

DEFAULT_TOPIC_BYTES = 1_048_588
"""What a topic takes where neither it nor its broker says anything: Kafka's default."""

SHORTEST_OFFSET_RETENTION_MINUTES = 24 * 60
"""A group whose offsets are forgotten sooner may lose its place over a night."""


def refusals(config: Config, broker: Mapping[str, str], written: Iterable[Topic]) -> Iterator[PenstockError]:
    """Why the application could not run; `broker` has the settings of one, as far as it tells them."""
    longest = int(broker.get("transaction.max.timeout.ms", config.transaction_timeout_ms))
    if config.guarantee is Guarantee.EXACTLY_ONCE and config.transaction_timeout_ms > longest:
        yield ConfigError(f"transaction_timeout: the brokers allow {longest} ms at most (their transaction.max.timeout.ms)")
    for topic in written:
        least = int(topic.config.get("min.insync.replicas", "1"))
        if least > topic.replicas:
            yield TopicError(
                f"topic {topic.name!r} has {topic.replicas} replicas and wants {least} for every write (min.insync.replicas): "
                f"nothing can be written to it; give it more replicas, or ask for fewer"
            )
        for name in ("batch.size", "producer.batch.size"):
            size = config.kafka.get(name, "")
            if size.isdecimal() and int(size) > topic.max_message_bytes:
                yield ConfigError(
                    f"kafka: {name!r} is more than topic {topic.name!r} takes, which is {topic.max_message_bytes} "
                    f"(max.message.bytes): a batch of that size would be refused; leave it out, or change the topic"
                )


def warnings(broker: Mapping[str, str]) -> Iterator[str]:
    """What may go wrong later."""
    minutes = int(broker.get("offsets.retention.minutes", SHORTEST_OFFSET_RETENTION_MINUTES))
    if minutes < SHORTEST_OFFSET_RETENTION_MINUTES:
        yield (
            f"the brokers forget the offsets of a group that is down for {minutes} minutes (their offsets.retention.minutes): "
            f"after that the application has to be reset"
        )


def default_size(broker: Mapping[str, str]) -> int:
    """What topics take that do not say anything themselves, by the settings of a broker."""
    return int(broker.get("message.max.bytes", DEFAULT_TOPIC_BYTES))


def size_of(topics: Topics, topic: str) -> int | None:
    """How large a record a topic takes; None if it does not exist, or does not tell everybody."""
    try:
        found = topics.describe([topic])
    except ConfigError as error:
        logger.info("how large records may be in %s cannot be told: %s", topic, error)
        return None
    return found[topic].max_message_bytes if topic in found else None


class SizeLimits:
    """How large a record may be, by its topic: what the topic takes, and what the producer sends at most.

    `ask` is called for topics that are not `known`, which a record may choose; `default` is for those of which nobody knows.
    """

    def __init__(self, known: Mapping[str, int], default: int, largest: int, ask: Callable[[str], int | None]) -> None:
        self._known = {topic: min(size, largest) for topic, size in known.items()}
        self._default = min(default, largest)
        self._largest = largest
        self._ask = ask

    def of(self, topic: str) -> int:
        """The size that a record for this topic may have."""
        limit = self._known.get(topic)
        if limit is None:
            told = self._ask(topic)
            if told is None:  # it may be created by what is sent there, so somebody may know next time
                return self._default
            limit = self._known[topic] = min(told, self._largest)
        return limit
