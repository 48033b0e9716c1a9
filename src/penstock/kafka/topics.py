"""Describes topics, creates and checks the application's own, and finds where partitions begin and end."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from penstock import machine
from penstock.errors import TopicError
from penstock.kafka.failures import kafka_error, translated
from penstock.records import Partition
from penstock.state import MARK_LIFE_MS, StoreKind, StoreSpec

logger: logging.Logger = logging.getLogger(__name__)

DAY_MS = 86_400_000
LONGEST_MS = 2**63 - 1
"""The largest duration that a topic accepts: the windows of `unlimited()` are kept forever."""
TOMBSTONES_MS = 2 * MARK_LIFE_MS
"""How long a changelog keeps tombstones: a store that catches up from a mark must read all deletions since."""
_PAUSE_S = 0.1
_SETTLING_S = 0.02
_COMMITTED = IsolationLevel.READ_COMMITTED
_LEADER_MOVES = {
    KafkaError._NOENT,  # it has no leader
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
}
"""A partition is between two leaders, or its new leader is not ready yet: the request is retried."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as Kafka describes it. Its id changes when it is deleted and created again under the same name."""

    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, str]
    replicas: int = 1

    @property
    def max_message_bytes(self) -> int:
        """The largest batch of records that it accepts."""
        return int(self.config["max.message.bytes"])

    @property
    def tombstones_ms(self) -> int | None:
        """How long it keeps tombstones at least; None if it is not compacted."""
        return int(self.config["delete.retention.ms"]) if "compact" in _policies(self.config.get("cleanup.policy", "")) else None


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """An internal topic of the application, as it must be."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


def changelog_config(spec: StoreSpec) -> dict[str, str]:
    """The settings of a store's changelog: those that Kafka Streams would choose, overridden by the store's own."""
    config = {
        "cleanup.policy": "compact",
        "delete.retention.ms": str(TOMBSTONES_MS),
        "message.timestamp.type": "CreateTime",
    }
    kept_ms = str(min((spec.retention_ms or 0) + DAY_MS, LONGEST_MS))
    if spec.kind is StoreKind.VERSIONED:
        config["min.compaction.lag.ms"] = kept_ms
    elif spec.retention_ms is not None:
        config |= {"cleanup.policy": "compact,delete", "retention.ms": kept_ms}
    return config | dict(spec.changelog_config)


class Topics:
    """Queries topics with an admin client; a topic that does not exist is not an error until it is needed."""

    def __init__(self, admin: AdminClient, timeout_ms: int) -> None:
        self._admin = admin
        self._timeout = timeout_ms / 1_000

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Describe those of the topics that exist."""
        found = self._described(names)
        configs = self._configs(list(found))
        both = sorted(found.keys() & configs.keys())  # one may be deleted in between
        return {name: _topic(name, found[name], configs[name]) for name in both}

    def seen(self, names: Iterable[str]) -> dict[str, Topic]:
        """Describe those of the topics that exist, without their settings: that saves a request."""
        return {name: _topic(name, about, {}) for name, about in self._described(names).items()}

    def broker_settings(self) -> dict[str, str]:
        """The settings of one broker; none if the client may not read them."""
        try:
            known = self._admin.list_topics(timeout=self._timeout)
            resource = ConfigResource(ResourceType.BROKER, str(min(known.brokers)))
            entries = self._admin.describe_configs([resource], request_timeout=self._timeout)[resource].result()
        except KafkaException as error:
            said = kafka_error(error)
            if said is not None and said.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return {}
            raise translated(error, "Cannot read the settings of a broker") from error
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def names(self) -> set[str]:
        """All topics except Kafka's own."""
        try:
            known = self._admin.list_topics(timeout=self._timeout)
        except KafkaException as error:
            raise translated(error, "Cannot list topics") from error
        return {name for name in known.topics if not name.startswith("__")}

    def identities(self, names: Iterable[str]) -> dict[str, str]:
        """The cluster's id and the topic's id, for topics that exist; they change when a topic is created again."""
        cluster = self.cluster_id()
        return {name: f"{cluster}/{topic.topic_id}" for name, topic in self.describe(names).items()}

    def cluster_id(self) -> str:
        """The cluster's id: topics of another cluster may have the same names, and even the same ids."""
        try:
            return str(self._admin.list_topics(timeout=self._timeout).cluster_id)
        except KafkaException as error:
            raise translated(error, "Cannot read the cluster's id") from error

    def offset_at(self, partition: Partition, timestamp_ms: int, end: int) -> int:
        """The offset of the first record at or after a time; `end` if there is none."""
        found = self.offsets_at([partition], timestamp_ms)[partition]
        return end if found is None else found

    def offsets_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int | None]:
        """The offset of each partition's first record at or after a time; None if there is none."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms))
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    def ensure(self, wanted: Sequence[InternalTopic], replication_factor: int) -> dict[str, Topic]:
        """Create the internal topics that do not exist, and check all of them."""
        names = [topic.name for topic in wanted]
        known = self.describe(names)
        self._create([topic for topic in wanted if topic.name not in known], replication_factor)
        deadline = machine.monotonic() + self._timeout
        while len(known) < len(names) and machine.monotonic() < deadline:  # brokers learn of new topics one by one
            known = self.describe(names)
        for topic in wanted:
            check(topic, known.get(topic.name))
        return known

    def begin_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where each partition's log begins."""
        return self._offsets(partitions, OffsetSpec.earliest())

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where each partition's committed records end: control records count, an open transaction does not."""
        return self._offsets(partitions, OffsetSpec.latest())

    def settled_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where each partition's log ends, when all transactions in it have ended, too.

        Brokers answer a commit before they have noted it in every partition: for a moment, `end_offsets` do not have it.
        """
        pending = self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        settled: dict[Partition, int] = {}
        deadline = machine.monotonic() + self._timeout
        while pending:
            settled |= self.end_offsets(pending)
            pending = {place: end for place, end in pending.items() if settled[place] < end}
            if pending and machine.monotonic() > deadline:
                topic, partition = min(pending)
                raise TopicError(
                    f"A transaction in {topic}-{partition} has not ended within {self._timeout:g} s, so that what follows it "
                    f"cannot be read. Find it with `kafka-transactions.sh find-hanging`, and check the brokers."
                )
            if pending:
                machine.sleep(_SETTLING_S)
        return settled

    def _offsets(
        self, partitions: Iterable[Partition], where: OffsetSpec, level: IsolationLevel = _COMMITTED
    ) -> dict[Partition, int]:
        wanted = {TopicPartition(topic, partition): where for topic, partition in partitions}
        if not wanted:
            return {}
        found: dict[Partition, int] = {}
        deadline = machine.monotonic() + self._timeout
        while wanted:
            futures = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=self._timeout)
            for place, future in futures.items():
                try:
                    found[place.topic, place.partition] = future.result().offset
                    del wanted[place]
                except KafkaException as error:
                    said = kafka_error(error)
                    if said is None or said.code() not in _LEADER_MOVES or machine.monotonic() > deadline:
                        raise translated(error, f"Cannot read the offsets of {place.topic}-{place.partition}") from error
            if wanted:
                machine.sleep(_PAUSE_S)
                self.names()  # librdkafka keeps its stale leaders until all topics are listed
        return found

    def _described(self, names: Iterable[str]) -> dict[str, Any]:
        wanted = sorted(set(names))
        if not wanted:
            return {}
        return _those_that_exist(self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._timeout))

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        futures = self._admin.describe_configs(resources, request_timeout=self._timeout)
        found = _those_that_exist({resource.name: future for resource, future in futures.items()})
        return {topic: {name: entry.value for name, entry in entries.items()} for topic, entries in found.items()}

    def _create(self, missing: Sequence[InternalTopic], replication_factor: int) -> None:
        if not missing:
            return
        new = [NewTopic(t.name, t.partitions, replication_factor, config=dict(t.config)) for t in missing]
        for name, future in self._admin.create_topics(new, request_timeout=self._timeout).items():
            try:
                future.result()
            except KafkaException as error:
                said = kafka_error(error)
                if said is None or said.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise TopicError(f"Cannot create topic {name!r}: {said.str() if said else error}") from error
            logger.info("created topic %s", name)


def partitions_of(topics: Iterable[Topic]) -> list[Partition]:
    """All partitions of some topics."""
    return [(topic.name, number) for topic in topics for number in range(topic.partitions)]


def _those_that_exist(futures: Mapping[str, Future[Any]]) -> dict[str, Any]:
    """The answers about topics, except those that do not exist."""
    found = {}
    for name, future in futures.items():
        try:
            found[name] = future.result()
        except KafkaException as error:
            said = kafka_error(error)
            if said is None or said.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise translated(error, f"Cannot describe topic {name!r}") from error
    return found


def _topic(name: str, found: Any, config: Mapping[str, str]) -> Topic:
    replicas = min((len(partition.replicas) for partition in found.partitions), default=0)
    return Topic(name, str(found.topic_id), len(found.partitions), config, replicas)


def check(wanted: InternalTopic, found: Topic | None) -> None:
    """Raise if an internal topic is not as it must be."""
    if found is None:
        raise TopicError(f"Topic {wanted.name!r} was created, but does not exist. Check the brokers' logs.")
    if found.partitions != wanted.partitions:
        raise TopicError(
            f"Topic {wanted.name!r} has {found.partitions} partitions but needs {wanted.partitions}: the number of shards is "
            f"fixed at the first start. Set shards to {found.partitions}, or reset the application."
        )
    for name, value in wanted.config.items():
        if name == "cleanup.policy" and _policies(found.config.get(name, "")) != _policies(value):
            raise TopicError(f"Topic {wanted.name!r} has {name} {found.config.get(name)!r} but needs {value!r}. Set it there.")
        if name == "delete.retention.ms" and (kept := found.tombstones_ms) is not None and kept < TOMBSTONES_MS:
            raise TopicError(
                f"Topic {wanted.name!r} has {name} {kept} but needs at least {TOMBSTONES_MS}: a store that catches up after some "
                f"hours would miss deletions. Set it to {TOMBSTONES_MS} or more there."
            )


def _policies(value: str) -> set[str]:
    return {policy.strip() for policy in value.split(",")}
