"""`SimulatedAdmin`: asks a simulated Kafka about topics and groups, with the methods of `AdminClient` that Penstock calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from penstock.testing.simulation.client import Client
from penstock.testing.simulation.kafka import refused


class SimulatedAdmin(Client):
    """Asks about topics and groups, and changes them."""

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks, of which there are none."""
        return 0

    def describe_topics(self, topics: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        """Describe topics."""
        return self._each("describe topics", topics.topic_names, self._described)

    def describe_configs(self, resources: Sequence[ConfigResource], **_: object) -> dict[ConfigResource, Future[Any]]:
        """Return settings."""
        return self._each("describe settings", resources, self._settings)

    def create_topics(self, topics: Sequence[NewTopic], **_: object) -> dict[str, Future[Any]]:
        """Create topics."""
        wanted = {topic.topic: topic for topic in topics}
        return self._each(
            "create topics", list(wanted), lambda name: self._kafka.create(name, wanted[name].num_partitions, wanted[name].config)
        )

    def delete_topics(self, topics: Sequence[str], **_: object) -> dict[str, Future[Any]]:
        """Delete topics."""
        return self._each("delete topics", topics, self._kafka.delete)

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        **_: object,
    ) -> dict[TopicPartition, Future[Any]]:
        """Return offsets of partitions: the first, the next, or that of a time."""

        def found(place: TopicPartition) -> Any:
            log = self._kafka.log((place.topic, place.partition))
            spec = wanted[place]._value
            if spec == OffsetSpec.earliest()._value:
                return SimpleNamespace(offset=log.begin)
            if spec == OffsetSpec.latest()._value:
                return SimpleNamespace(offset=log.stable_end if isolation_level is IsolationLevel.READ_COMMITTED else log.end)
            return SimpleNamespace(offset=log.at(spec))

        return self._each("list offsets", list(wanted), found)

    def describe_consumer_groups(self, groups: Sequence[str], **_: object) -> dict[str, Future[Any]]:
        """Describe groups."""

        def described(group: str) -> Any:
            members = [SimpleNamespace(client_id=f"member-{n}", host="here") for n in range(self._kafka.members.get(group, 0))]
            return SimpleNamespace(members=members)

        return self._each("describe groups", groups, described)

    def _described(self, name: str) -> Any:
        if name not in self._kafka.topics:
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        topic = self._kafka.topics[name]
        return SimpleNamespace(topic_id=topic.topic_id, partitions=[SimpleNamespace(replicas=[0]) for _ in topic.logs])

    def _settings(self, resource: ConfigResource) -> Any:
        if resource.restype is ResourceType.BROKER:
            found = self._kafka.broker
        elif resource.name in self._kafka.topics:
            found = self._kafka.topics[resource.name].config
        else:
            raise refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return {name: SimpleNamespace(value=value) for name, value in found.items()}

    def _each(self, request: str, wanted: Iterable[Any], answer: Callable[[Any], Any]) -> dict[Any, Future[Any]]:
        """Answer each part of a request."""
        self._way.before(request)
        futures: dict[Any, Future[Any]] = {}
        for part in wanted:
            future = futures[part] = Future()
            try:
                future.set_result(answer(part))
            except KafkaException as error:
                future.set_exception(error)
        self._way.after(request)
        return futures
