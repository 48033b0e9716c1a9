"""Transient errors of a busy broker: the harness retries instead of failing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

TIMEOUT_S = 30
_PAUSE_S = 0.1
_PASSING = frozenset(
    {
        KafkaError._NOENT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Leaders and coordinators move, load, or are slow: the same request succeeds a moment later."""
T = TypeVar("T")


def is_passing(error: KafkaError | None) -> bool:
    """Whether the error is transient: the client recovers, or a retry succeeds."""
    return error is not None and error.code() in _PASSING


def insist(ask: Callable[[], T], timeout_s: float = TIMEOUT_S) -> T:
    """Retry until there is a result, or an error that is not transient."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            if not is_passing(error.args[0]) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)


def ends(
    admin: AdminClient, places: Iterable[tuple[str, int]], level: IsolationLevel = IsolationLevel.READ_COMMITTED
) -> dict[tuple[str, int], int]:
    """The end offsets of partitions; by default of committed records."""
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for topic, partition in places}

    def ask() -> dict[tuple[str, int], int]:
        answers = admin.list_offsets(dict(asked), isolation_level=level)
        try:
            return {(place.topic, place.partition): answer.result(TIMEOUT_S).offset for place, answer in answers.items()}
        except KafkaException:
            admin.list_topics(timeout=TIMEOUT_S)  # librdkafka uses the leaders it knows until all topics are requested
            raise

    return insist(ask) if asked else {}
