"""What brokers and topics must allow for the application to run: asked at the start, and said in one sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.config import Config, Guarantee
from penstock.errors import ConfigError, PenstockError, TopicError
from penstock.kafka.topics import Topic

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
        for name in ("message.max.bytes", "producer.message.max.bytes"):
            size = config.kafka.get(name, "")
            if size.isdecimal() and int(size) > topic.max_message_bytes:
                yield ConfigError(
                    f"kafka: {name!r} is more than topic {topic.name!r} takes, which is {topic.max_message_bytes} "
                    f"(max.message.bytes); leave it out, or change the topic"
                )


def warnings(broker: Mapping[str, str]) -> Iterator[str]:
    """What may go wrong later."""
    minutes = int(broker.get("offsets.retention.minutes", SHORTEST_OFFSET_RETENTION_MINUTES))
    if minutes < SHORTEST_OFFSET_RETENTION_MINUTES:
        yield (
            f"the brokers forget the offsets of a group that is down for {minutes} minutes (their offsets.retention.minutes): "
            f"after that the application has to be reset"
        )
