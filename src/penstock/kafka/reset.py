"""Finds and deletes what Kafka stores for an application: its group's offsets and its internal topics."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock import machine
from penstock.config import Config
from penstock.errors import BrokerError, FencedError, PenstockError, TopicError
from penstock.kafka.clients import consumer_settings, for_client, open_consumer, producer_settings
from penstock.kafka.failures import configured_wrongly, is_retriable, kafka_error, translated
from penstock.kafka.offsets import Committed, committed, retried
from penstock.kafka.opening import clients
from penstock.records import Partition

if TYPE_CHECKING:
    from typing_extensions import Self

_SLICE_S = 5.0
_PAUSE_S = 0.1
_MARKER = b"reset"


def group_offsets(admin: AdminClient, config: Config, group_id: str) -> dict[Partition, Committed]:
    """Return everything that a group has committed, for any topic."""
    known = _topics(admin, config)
    every = [(name, number) for name, topic in known.items() if not name.startswith("__") for number in topic.partitions]
    consumer = open_consumer(consumer_settings(config, group_id))
    try:
        found = committed(consumer, every, config.broker_timeout_ms)
    finally:
        consumer.close()
    return {partition: offset for partition, offset in found.items() if offset is not None}


def delete_group(admin: AdminClient, config: Config, group_id: str) -> None:
    """Delete a group with all its offsets; return once they are gone."""

    def delete() -> None:
        try:
            admin.delete_consumer_groups([group_id], request_timeout=_SLICE_S)[group_id].result()
        except KafkaException as error:
            said = kafka_error(error)
            if said is None or said.code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    retried(delete, config.broker_timeout_ms, f"Cannot delete group {group_id!r}")
    deadline = machine.monotonic() + config.broker_timeout_ms / 1_000
    while group_offsets(admin, config, group_id):
        if machine.monotonic() > deadline:
            raise BrokerError(f"Group {group_id!r} was deleted, but still has offsets. Check the brokers' logs.")
        machine.sleep(_PAUSE_S)


def delete_topics(admin: AdminClient, config: Config, names: Collection[str]) -> None:
    """Delete topics; return once they are gone. A topic that does not exist is not an error."""
    timeout_s = config.broker_timeout_ms / 1_000
    futures = admin.delete_topics(sorted(names), request_timeout=timeout_s, operation_timeout=timeout_s) if names else {}
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            said = kafka_error(error)
            if said is None or said.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicError(f"Cannot delete topic {name!r}: {said.str() if said else error}") from error
    deadline = machine.monotonic() + timeout_s
    while _topics(admin, config).keys() & set(names):
        if machine.monotonic() > deadline:
            raise BrokerError(f"Topics were deleted, but still exist: {', '.join(sorted(names))}. Check the brokers' logs.")
        machine.sleep(_PAUSE_S)


def _topics(admin: AdminClient, config: Config) -> dict[str, Any]:
    try:
        return admin.list_topics(timeout=config.broker_timeout_ms / 1_000).topics
    except KafkaException as error:
        raise translated(error, "Cannot list topics") from error


class Fence:
    """Keeps instances of an application from committing, and detects whether one has started since.

    It takes over the application's transactional id, so a running instance ends at its next commit. An instance that starts
    later takes over the id in turn, before it reads anything; from then on, `prove` raises.
    """

    def __init__(self, config: Config, transactional_id: str, topic: str) -> None:
        self._topic = topic
        self._timeout_s = config.broker_timeout_ms / 1_000
        settings = producer_settings(config) | {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": str(config.transaction_timeout_ms),
        }
        try:
            self._producer = clients().producer(for_client(settings))
        except KafkaException as error:
            raise configured_wrongly(error) from None

    def __enter__(self) -> Self:
        self._insist(lambda: self._producer.init_transactions(_SLICE_S), "Cannot fence the application")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(KafkaException, SystemError):  # a fatal error, which `prove` has already raised
            self._producer.close()

    def prove(self) -> None:
        """Raise if an instance has started since.

        It commits a transaction to find out, with an empty record: so the topic is not empty afterwards.
        """
        try:
            self._producer.begin_transaction()
            self._producer.produce(self._topic, key=_MARKER, value=None, partition=0)
        except (KafkaException, SystemError) as error:
            raise self._failed(error) from error
        self._insist(lambda: self._producer.commit_transaction(_SLICE_S), "Cannot check for other instances")

    def _insist(self, act: Callable[[], None], what: str) -> None:
        deadline = machine.monotonic() + self._timeout_s
        while True:
            try:
                act()
            except (KafkaException, SystemError) as error:
                if not is_retriable(error) or machine.monotonic() > deadline:
                    raise self._failed(error, what) from error
            else:
                return

    def _failed(self, error: BaseException, what: str = "Cannot check for other instances") -> PenstockError:
        found = translated(error, what)
        if isinstance(found, FencedError):
            return FencedError("An instance of the application has started in the meantime. Stop it, then repeat the command.")
        return found
