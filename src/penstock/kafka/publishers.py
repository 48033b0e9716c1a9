"""Two ways to publish an epoch: in one Kafka transaction, or record by record with the offsets last.

Both implement the committer's `Publisher`. If executors write, `writers` has a third.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock import machine
from penstock.config import Config, Guarantee
from penstock.errors import BrokerError, CommitError, FencedError, PenstockError
from penstock.faults import point
from penstock.kafka.clients import consumer_settings, open_consumer, producer_settings
from penstock.kafka.failures import is_passing, is_retriable, is_unexplained, kafka_error, requires_abort, translated
from penstock.kafka.offsets import read_committed
from penstock.kafka.producer import RowProducer
from penstock.kafka.statistics import OnStatistics

if TYPE_CHECKING:
    from penstock.kafka.commit import SourceOffset
    from penstock.kafka.writers.publisher import SharedPublisher

logger: logging.Logger = logging.getLogger(__name__)

SLICE_S = 5.0
"""The timeout of one call to the client, so that an interrupted process does not hang for longer."""

STUCK_S = 10.0
"""After this long, a client that has not sent the offsets is replaced."""

ABORT_S = 10.0

REPORT_S = 0.2
"""How long to wait for the report that says which record made a transaction fail."""


class TransactionalPublisher:
    """Publishes each epoch in one transaction.

    Of two producers with one `transactional_id`, only one can continue: `start` fences the other and ends its transaction.

    A producer that has lost a connection is replaced before the next transaction. Without KIP-890, which librdkafka does not
    implement, a commit request that was lost and sent again may arrive late and commit the transaction that is open by then. A
    new producer fences requests of the old one.
    """

    def __init__(
        self,
        config: Config,
        transactional_id: str,
        group_id: str,
        topics: Sequence[str],
        limits: Collection[int] = (),
        clock: Callable[[], float] = machine.monotonic,
        on_statistics: OnStatistics | None = None,
    ) -> None:
        self._config = config
        self._settings = producer_settings(config, limits) | {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": str(config.transaction_timeout_ms),
        }
        self._group_id = group_id
        self._topics = topics
        self._clock = clock
        self._on_statistics = on_statistics
        self._patience = config.broker_timeout_ms / 1_000
        self._began: float | None = None
        self._rows: list[pa.RecordBatch] = []
        self._sent: Sequence[SourceOffset] = ()
        self._committed: Sequence[SourceOffset] = ()
        self._is_settled = False
        self._is_in_doubt = False
        self._group_metadata: Any = None
        self._producer: RowProducer

    def start(self) -> None:
        """Take over from any other instance."""
        point("kafka.before_init")
        consumer = open_consumer(consumer_settings(self._config, self._group_id))
        self._group_metadata = consumer.consumer_group_metadata()
        consumer.close()
        self._init()
        point("kafka.after_init")

    @property
    def is_suspect(self) -> bool:
        """Whether a commit of this producer may still arrive late, so that a new producer should take over."""
        return self._is_in_doubt or self._producer.had_trouble

    def begin(self) -> None:
        """Open a transaction."""
        self._producer.poll()
        if self._is_in_doubt or (self._producer.had_trouble and self._committed):
            self._renew()
        self._rows = []
        self._begin()

    def produce(self, rows: pa.RecordBatch) -> None:
        """Hand over rows to send in the transaction."""
        self._rows.append(rows)
        self._produce(rows)

    def send_offsets(self, offsets: Sequence[SourceOffset]) -> None:
        """Add the offsets of the application's group to the transaction.

        librdkafka may wait forever for a group coordinator that has moved or restarted, whatever the timeout
        (confluentinc/librdkafka#5456, #5511). In that case, repeat the transaction with a new producer.
        """
        self._sent = offsets
        deadline = self._clock() + self._patience
        while not self._send_offsets(_partitions(offsets)):
            if self._clock() >= deadline:
                raise BrokerError(f"The offsets could not be sent within {self._patience:g} s.")
            logger.warning("offsets could not be sent; repeating the transaction with a new producer")
            self._renew()
            self._begin()
            for rows in self._rows:
                self._produce(rows)

    def commit(self) -> bool:
        """Commit the transaction; return False if the outcome is not known yet."""
        try:
            self._producer.client.commit_transaction(SLICE_S)
        except (KafkaException, SystemError) as error:
            if is_retriable(error):
                self._is_in_doubt = True
                return False
            if requires_abort(error):
                self._abort_quietly()
            raise self._failed(error, "Cannot commit the transaction") from error
        self._producer.is_in_reach()
        self._settle()
        self._rows = []
        self._committed = self._sent or self._committed
        return True

    def abort(self) -> None:
        """Abort the transaction."""
        try:
            self._producer.client.abort_transaction(ABORT_S)
        except (KafkaException, SystemError) as error:
            raise self._failed(error, "Cannot abort the transaction") from error
        self._settle()

    def check(self) -> None:
        """Serve the client while idle; raise if no broker has been reachable for too long."""
        self._producer.check()

    def close(self) -> None:
        """Close the client, unless a transaction is open: closing would abort it, and it may already be committed."""
        if self._is_settled:
            self._producer.client.close()

    def _init(self) -> None:
        self._is_settled, self._began = False, None
        timeout_ms = self._config.broker_timeout_ms
        self._producer = RowProducer(self._settings, self._topics, timeout_ms, self._clock, self._on_statistics)
        deadline = self._clock() + self._patience
        while True:
            try:
                self._producer.client.init_transactions(SLICE_S)
            except (KafkaException, SystemError) as error:
                if not is_retriable(error) or self._clock() >= deadline:
                    raise self._failed(error, "Cannot initialise transactions") from error
            else:
                break
        self._producer.is_in_reach()
        self._producer.poll()
        self._producer.had_trouble = False
        self._settle()

    def _renew(self) -> None:
        """Continue with a new producer.

        It also fences an instance that may have started in the meantime, so it continues only if that one has committed nothing.
        Before the first commit, there is no way to know that.
        """
        if not self._committed:
            raise CommitError("The connection was lost before the first commit. Start again.")
        logger.warning("a connection was lost, or the outcome of a commit was unknown; continuing with a new producer")
        self.close()
        self._init()
        settings, partitions = consumer_settings(self._config, self._group_id), [(o.topic, o.partition) for o in self._committed]
        found = read_committed(settings, partitions, self._config.broker_timeout_ms)
        if any(found[o.topic, o.partition] != (o.offset, o.metadata) for o in self._committed):
            raise FencedError("Another instance of the application has committed in the meantime. Start again.")
        self._is_in_doubt = False

    def _begin(self) -> None:
        self._producer.begin()
        try:
            self._producer.client.begin_transaction()
        except (KafkaException, SystemError) as error:
            raise self._failed(error, "Cannot begin a transaction") from error
        self._is_settled, self._began = False, self._clock()

    def _produce(self, rows: pa.RecordBatch) -> None:
        try:
            self._producer.produce(rows)
        except PenstockError as error:
            if is_unexplained(error.__cause__):
                self._raise_cause("Cannot send records")
            raise

    def _raise_cause(self, what: str) -> None:
        """Raise why the client has failed for good: every call about the transaction says so, `produce` does not."""
        try:
            self._producer.client.abort_transaction(SLICE_S)
        except (KafkaException, SystemError) as error:
            raise self._failed(error, what) from error

    def _settle(self) -> None:
        """Note that no transaction is open."""
        self._is_settled, self._began = True, None

    def _send_offsets(self, partitions: list[TopicPartition]) -> bool:
        """Send the offsets in a thread, which may never return; return False if a new producer should retry."""
        producer, raised = self._producer, []

        def send() -> None:
            try:
                producer.client.send_offsets_to_transaction(partitions, self._group_metadata, SLICE_S)
            except (KafkaException, SystemError) as error:
                raised.append(error)

        sending = machine.thread(send, "penstock-offsets")
        sending.start()
        sending.join(min(STUCK_S, self._config.transaction_timeout_ms / 1_000))
        if sending.is_alive():
            return False
        if raised and not (is_retriable(raised[0]) or is_passing(raised[0])):
            raise self._failed(raised[0], "Cannot send offsets") from raised[0]
        return not raised

    def _abort_quietly(self) -> None:
        """Abort after a failure. If another instance has taken over, that is why it failed, whatever the broker has said."""
        try:
            self.abort()
        except FencedError:
            raise
        except PenstockError as error:
            logger.warning("%s", error)

    def _failed(self, raised: BaseException, what: str) -> PenstockError:
        """Return the most specific error: why a record was not delivered, or why the transaction failed."""
        error = translated(raised, what)
        took = 0.0 if self._began is None else self._clock() - self._began
        if isinstance(error, FencedError) and took * 1_000 >= self._config.transaction_timeout_ms:
            return CommitError(f"{what}: open for {took:.0f} s, longer than transaction_timeout, so the broker aborted it.")
        undelivered = self._producer.delivery_failure(wait_s=REPORT_S)
        if isinstance(error, FencedError) or undelivered is None:
            undelivered = error
        if isinstance(undelivered, BrokerError) and self._began is not None and not self._producer.is_out_of_reach_too_long:
            return CommitError(f"{undelivered}. Nothing of the transaction is visible.")
        return undelivered


class AtLeastOncePublisher:
    """Publishes records immediately and commits the offsets once all are delivered; after a failure, records are repeated."""

    def __init__(
        self,
        config: Config,
        group_id: str,
        topics: Sequence[str],
        limits: Collection[int] = (),
        clock: Callable[[], float] = machine.monotonic,
        on_statistics: OnStatistics | None = None,
    ) -> None:
        settings = producer_settings(config, limits)
        settings.setdefault("message.timeout.ms", str(config.broker_timeout_ms))
        self._producer = RowProducer(settings, topics, config.broker_timeout_ms, clock, on_statistics)
        self._consumer = open_consumer(consumer_settings(config, group_id))
        self._sent: Sequence[SourceOffset] = ()

    def start(self) -> None:
        """Do nothing: there is no other instance to fence."""

    def begin(self) -> None:
        """Begin an epoch."""
        self._producer.begin()

    def produce(self, rows: pa.RecordBatch) -> None:
        """Hand over rows to send."""
        self._producer.produce(rows)

    def send_offsets(self, offsets: Sequence[SourceOffset]) -> None:
        """Keep the offsets until all rows are delivered."""
        self._sent = offsets

    def commit(self) -> bool:
        """Wait until all rows are delivered, then commit the offsets; return False if that is not done yet."""
        try:
            if self._producer.client.flush(SLICE_S):
                return False
            undelivered = self._producer.delivery_failure()
            if undelivered is not None:
                raise undelivered
            if self._sent:
                self._commit_offsets()
        except (KafkaException, SystemError) as error:
            found = kafka_error(error)
            if found is not None and (found.retriable() or found.code() in _ASK_AGAIN):
                return False
            raise translated(error, "Cannot commit offsets") from error
        self._producer.is_in_reach()
        return True

    def abort(self) -> None:
        """Drop the rows that have not been sent yet."""
        self._producer.client.purge()

    def check(self) -> None:
        """Serve the clients while idle; raise if no broker has been reachable for too long."""
        self._consumer.poll(0)
        self._producer.check()

    def close(self) -> None:
        """Close the clients."""
        self._producer.client.close()
        self._consumer.close()

    def _commit_offsets(self) -> None:
        for partition in self._consumer.commit(offsets=_partitions(self._sent), asynchronous=False):
            if partition.error is not None:
                raise KafkaException(partition.error)


Publisher: TypeAlias = "TransactionalPublisher | AtLeastOncePublisher | SharedPublisher"


def publisher_of(
    config: Config,
    application_id: str,
    topics: Sequence[str] = (),
    limits: Collection[int] = (),
    on_statistics: OnStatistics | None = None,
) -> TransactionalPublisher | AtLeastOncePublisher:
    """Return the publisher of an application, by its guarantee; `limits` are size limits of records."""
    if config.guarantee is Guarantee.EXACTLY_ONCE:
        return TransactionalPublisher(config, application_id, application_id, topics, limits, on_statistics=on_statistics)
    return AtLeastOncePublisher(config, application_id, topics, limits, on_statistics=on_statistics)


_ASK_AGAIN = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._WAIT_COORD, KafkaError.COORDINATOR_NOT_AVAILABLE}


def _partitions(offsets: Sequence[SourceOffset]) -> list[TopicPartition]:
    return [TopicPartition(offset.topic, offset.partition, offset.offset, metadata=offset.metadata) for offset in offsets]
