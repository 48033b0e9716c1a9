"""The committed offsets of the application's group, which no other consumer may use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock import machine
from penstock.errors import BrokerError, ConfigError
from penstock.kafka.clients import open_consumer
from penstock.kafka.failures import failure, kafka_error, translated
from penstock.records import Partition

T = TypeVar("T")
Committed = tuple[int, str]
"""An offset and the metadata that was committed with it."""


_UNREADABLE = (
    "Cannot read committed offsets (if the brokers are up, a hanging transaction blocks them: find it with "
    "kafka-transactions.sh find-hanging, and abort it)"
)
_ATTEMPT_MS = 15_000
_SLICE_S = 5.0
_PAUSE_S = 0.1
_LATER = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}


def committed(consumer: Consumer, partitions: Iterable[Partition], timeout_ms: int) -> dict[Partition, Committed | None]:
    """Return what the consumer's group has committed for each partition; None where it has committed nothing.

    Waits for pending transactions: a consumer that reads committed records requests stable offsets. The admin client cannot be
    used: its `list_consumer_group_offsets` crashes the process if the coordinator is not ready (librdkafka 2.16).
    """
    wanted = [TopicPartition(topic, partition) for topic, partition in partitions]
    if not wanted:
        return {}
    answer = retried(lambda: consumer.committed(wanted, timeout=_SLICE_S), timeout_ms, _UNREADABLE)
    found: dict[Partition, Committed | None] = {}
    for entry in answer:
        if entry.error is not None:
            raise failure(entry.error, f"Cannot read the committed offset of {entry.topic}-{entry.partition}")
        found[entry.topic, entry.partition] = (entry.offset, entry.metadata or "") if entry.offset >= 0 else None
    return found


def read_committed(
    settings: Mapping[str, str], partitions: Sequence[Partition], timeout_ms: int
) -> dict[Partition, Committed | None]:
    """Like `committed`, with a new consumer for each attempt: one that lost its coordinator may never find another."""
    deadline = machine.monotonic() + timeout_ms / 1_000
    while True:
        consumer = open_consumer(settings)
        try:
            return committed(consumer, partitions, min(timeout_ms, _ATTEMPT_MS))
        except BrokerError:
            if machine.monotonic() > deadline:
                raise
        finally:
            consumer.close()


def retried(request: Callable[[], T], timeout_ms: int, what: str) -> T:
    """Query the group's coordinator; retry while it is being found or is loading the group."""
    deadline = machine.monotonic() + timeout_ms / 1_000
    while True:
        try:
            return request()
        except KafkaException as error:
            said = kafka_error(error)
            if said is None or said.code() not in _LATER or machine.monotonic() > deadline:
                raise translated(error, what) from error
            machine.sleep(_PAUSE_S)


def refuse_members(admin: AdminClient, group_id: str, timeout_ms: int) -> None:
    """Raise if the group has members: their commits and ours would overwrite each other."""

    def ask() -> Any:
        return admin.describe_consumer_groups([group_id], request_timeout=_SLICE_S)[group_id].result()

    described = retried(ask, timeout_ms, f"Cannot describe group {group_id!r}")
    if described.members:
        names = ", ".join(sorted(f"{member.client_id} at {member.host}" for member in described.members))
        raise ConfigError(
            f"Group {group_id!r} has members ({names}): they use the application's id as their group. Stop them, or rename it."
        )
