"""What brokers tell about themselves and about what a client may do: facts for `penstock doctor`, not judged here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from penstock.kafka.failures import translated


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The brokers, settings of one of them (none if they are not told), and what the client may do to the cluster."""

    brokers: int
    settings: dict[str, str]
    allowed: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic's fewest replicas and in-sync replicas over its partitions, and what the client may do to it."""

    replicas: int
    in_sync: int
    allowed: frozenset[str] | None


def describe_cluster(admin: AdminClient, timeout_s: float) -> ClusterFacts:
    """What the cluster says about itself."""
    try:
        found = admin.describe_cluster(include_authorized_operations=True, request_timeout=timeout_s).result()
    except KafkaException as error:
        raise translated(error, "the cluster could not be described") from error
    return ClusterFacts(len(found.nodes), _settings(admin, found.nodes[0].id, timeout_s), _names(found.authorized_operations))


def describe_topics(admin: AdminClient, names: Collection[str], timeout_s: float) -> dict[str, TopicFacts]:
    """What is told about those of the topics that are there."""
    if not names:
        return {}
    asked = TopicCollection(sorted(names))
    futures = admin.describe_topics(asked, include_authorized_operations=True, request_timeout=timeout_s)
    told: dict[str, TopicFacts] = {}
    for name, future in futures.items():
        try:
            found = future.result()
        except KafkaException:
            continue  # that it is missing, or hidden, is somebody else's finding
        told[name] = TopicFacts(
            min((len(partition.replicas) for partition in found.partitions), default=0),
            min((len(partition.isr) for partition in found.partitions), default=0),
            _names(found.authorized_operations),
        )
    return told


def group_rights(admin: AdminClient, group_id: str, timeout_s: float) -> frozenset[str] | None:
    """What the client may do to a group; None if nobody says."""
    futures = admin.describe_consumer_groups([group_id], include_authorized_operations=True, request_timeout=timeout_s)
    try:
        return _names(futures[group_id].result().authorized_operations)
    except KafkaException as error:
        raise translated(error, f"group {group_id!r} could not be described") from error


def _settings(admin: AdminClient, broker: int, timeout_s: float) -> dict[str, str]:
    """A broker's settings; none if it does not tell them, which takes a right of its own."""
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        entries = admin.describe_configs([resource], request_timeout=timeout_s)[resource].result()
    except KafkaException:
        return {}
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def _names(operations: Iterable[Any] | None) -> frozenset[str] | None:
    return None if operations is None else frozenset(operation.name for operation in operations)
