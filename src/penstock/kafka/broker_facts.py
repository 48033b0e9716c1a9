"""What brokers report about themselves and about the client's permissions: facts, which `penstock doctor` judges."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from penstock.kafka.failures import translated


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The number of brokers, the settings of one (if the client may read them), and the client's permissions on the cluster."""

    brokers: int
    settings: dict[str, str]
    allowed: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The fewest replicas and in-sync replicas of any partition of a topic, and the client's permissions on it."""

    replicas: int
    in_sync: int
    allowed: frozenset[str] | None


def describe_cluster(admin: AdminClient, timeout_s: float) -> ClusterFacts:
    """Describe the cluster."""
    try:
        found = admin.describe_cluster(include_authorized_operations=True, request_timeout=timeout_s).result()
    except KafkaException as error:
        raise translated(error, "Cannot describe the cluster") from error
    return ClusterFacts(len(found.nodes), _settings(admin, found.nodes[0].id, timeout_s), _names(found.authorized_operations))


def describe_topics(admin: AdminClient, names: Collection[str], timeout_s: float) -> dict[str, TopicFacts]:
    """Describe those of the topics that exist."""
    if not names:
        return {}
    wanted = TopicCollection(sorted(names))
    futures = admin.describe_topics(wanted, include_authorized_operations=True, request_timeout=timeout_s)
    facts: dict[str, TopicFacts] = {}
    for name, future in futures.items():
        try:
            found = future.result()
        except KafkaException:
            continue  # another check reports missing and hidden topics
        facts[name] = TopicFacts(
            min((len(partition.replicas) for partition in found.partitions), default=0),
            min((len(partition.isr) for partition in found.partitions), default=0),
            _names(found.authorized_operations),
        )
    return facts


def group_rights(admin: AdminClient, group_id: str, timeout_s: float) -> frozenset[str] | None:
    """The client's permissions on a group; None if the broker does not report them."""
    futures = admin.describe_consumer_groups([group_id], include_authorized_operations=True, request_timeout=timeout_s)
    try:
        return _names(futures[group_id].result().authorized_operations)
    except KafkaException as error:
        raise translated(error, f"Cannot describe group {group_id!r}") from error


def _settings(admin: AdminClient, broker: int, timeout_s: float) -> dict[str, str]:
    """A broker's settings; none if the client may not read them, which needs a permission of its own."""
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        entries = admin.describe_configs([resource], request_timeout=timeout_s)[resource].result()
    except KafkaException:
        return {}
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def _names(operations: Iterable[Any] | None) -> frozenset[str] | None:
    return None if operations is None else frozenset(operation.name for operation in operations)
