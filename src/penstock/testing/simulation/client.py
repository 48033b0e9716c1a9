"""`Client`: what all clients of a simulated Kafka have.

`Way.before` is called before each request, and `Way.after` when it is done, before the client has its answer: a simulation delays
them there, loses them, or kills the process. What they raise, the client raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from penstock.records import Partition
from penstock.testing.simulation.kafka import SimulatedKafka

Hook = Callable[[str], None]
"""Called with the name of a request."""


@dataclass(frozen=True)
class Way:
    """The way to a cluster."""

    kafka: SimulatedKafka
    before: Hook = lambda request: None
    after: Hook = lambda request: None
    refuses: Callable[[Partition], bool] = lambda place: False
    """Whether a leader refuses a producer's first batch, because it does not lead yet."""


class Client:
    """A client, on its way to a cluster."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._kafka = way.kafka

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return what is known about topics, or one of them."""
        self._way.before("metadata")
        known = self._kafka.topics
        names = list(known) if topic is None else [topic]
        found = {
            name: SimpleNamespace(
                topic=name,
                partitions=dict.fromkeys(range(len(known[name].logs))) if name in known else {},
                error=None if name in known else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART),
            )
            for name in names
        }
        self._way.after("metadata")
        return SimpleNamespace(topics=found, brokers={0: None}, cluster_id=self._kafka.cluster_id)


def offsets_in(positions: Iterable[TopicPartition]) -> dict[Partition, tuple[int, str]]:
    """Return offsets with their metadata."""
    return {(each.topic, each.partition): (each.offset, each.metadata or "") for each in positions}
