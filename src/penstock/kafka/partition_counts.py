"""How many partitions topics have, as a client knows it; asked again from time to time, because topics grow."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock import machine
from penstock.errors import ConfigError, TopicError
from penstock.kafka.failures import failure, kafka_error

_KNOWN_S = 300.0
"""How long a count holds: as long as librdkafka's own partitioner uses one."""
_REQUEST_S = 5.0
_PAUSE_S = 0.1
_PROPAGATION_S = 10.0
"""How long a topic may be unknown: another broker may have created it a moment ago."""


class PartitionCounts:
    """Asks brokers through a client, for at most `patience_s`."""

    def __init__(self, client: Any, patience_s: float, clock: Callable[[], float] = machine.monotonic) -> None:
        self._client = client
        self._patience_s = patience_s
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}

    def of(self, topics: Collection[str]) -> dict[str, int]:
        """Return the count of each topic; a topic that does not exist is created if brokers do that by themselves."""
        now = self._clock()
        for topic in topics:
            if topic not in self._known or now - self._known[topic][1] > _KNOWN_S:
                self._known[topic] = self._ask(topic), now
        return {topic: self._known[topic][0] for topic in topics}

    def _ask(self, topic: str) -> int:
        began = self._clock()
        while True:
            found = self._answer(topic)
            if isinstance(found, int):
                return found
            raised = failure(found, f"Topic {topic!r} (how many partitions it has)")
            patience_s = self._patience_s
            if isinstance(raised, TopicError):
                patience_s = min(patience_s, _PROPAGATION_S)
            elif isinstance(raised, ConfigError):
                patience_s = 0
            if self._clock() - began >= patience_s:
                raise raised
            machine.sleep(_PAUSE_S)

    def _answer(self, topic: str) -> KafkaError | int:
        try:
            about = self._client.list_topics(topic, timeout=min(_REQUEST_S, self._patience_s)).topics[topic]
        except KafkaException as raised:
            error = kafka_error(raised)
            if error is None:
                raise
            return error
        return len(about.partitions) if about.error is None else about.error
