"""`SimulatedProducer`: writes to a simulated Kafka, with the methods of `confluent_kafka.Producer` that Penstock calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from penstock.kafka.partitioner import murmur2
from penstock.records import Headers, Partition
from penstock.testing.simulation.client import Client, Way, offsets_in
from penstock.testing.simulation.kafka import Transaction, refused

_POSITIVE = 0x7FFFFFFF


class _Record(NamedTuple):
    place: Partition
    value: bytes | None
    key: bytes | None
    timestamp: int | None
    headers: Headers


class SimulatedProducer(Client):
    """Sends records, in transactions if it has a transactional id. What it has been given reaches the log when it is flushed."""

    def __init__(self, way: Way, settings: Mapping[str, Any]) -> None:
        super().__init__(way)
        self._number = way.kafka.new_producer()
        self._id: str | None = settings.get("transactional.id")
        self._timeout_s = int(settings.get("transaction.timeout.ms", 60_000)) / 1_000
        self._on_delivery = settings.get("on_delivery")
        self._epoch = -1
        self._has_begun = False
        self._waiting: list[_Record] = []
        self._failed: KafkaException | None = None

    def init_transactions(self, timeout: float = -1) -> None:
        """Fence earlier producers."""
        assert self._id is not None
        self._way.before("init")
        _, self._epoch = self._kafka.init_transactions(self._id, self._timeout_s)
        self._way.after("init")

    def begin_transaction(self) -> None:
        """Begin a transaction: only the client knows, until something is in it."""
        self._raise_failure()
        if self._has_begun:
            raise refused(KafkaError._STATE, "a transaction has begun already")
        self._has_begun = True

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        callback: object = None,
        on_delivery: object = None,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Take a record."""
        if self._id is not None and not self._has_begun:
            raise refused(KafkaError._STATE, "no transaction has begun")
        self._waiting.append(_Record(self._place(topic, key, partition), value, key, timestamp, tuple(headers or ())))

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks, of which there are none: what fails, fails at once."""
        return 0

    def flush(self, timeout: float = -1) -> int:
        """Send all records; return how many are left."""
        self._way.before("produce")
        transaction = self._transaction() if self._id is not None and self._waiting else None
        waiting, self._waiting = self._waiting, []
        for record in self._without_lost(waiting):
            self._send(transaction, record)
        self._way.after("produce")
        return 0

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Forget records that were not sent."""
        self._waiting = []

    def send_offsets_to_transaction(self, positions: Sequence[TopicPartition], group_metadata: str, timeout: float = -1) -> None:
        """Add offsets to the transaction."""
        self._raise_failure()
        self._way.before("offsets of a transaction")
        if positions:
            found = offsets_in(positions)
            self._transaction().offsets.update({(group_metadata, place): offset for place, offset in found.items()})
        self._way.after("offsets of a transaction")

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send what is left, and commit."""
        self.flush()
        if self._failed is not None:
            error: KafkaError = self._failed.args[0]
            raise refused(error.code(), error.str(), fatal=error.fatal(), aborts=not error.fatal())
        self._end(commits=True)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort."""
        self._waiting = []
        if self._failed is not None and self._failed.args[0].fatal():
            raise self._failed
        self._failed = None
        self._end(commits=False)

    def close(self) -> None:
        """End; an open transaction stays open."""
        self._waiting = []

    def _end(self, *, commits: bool) -> None:
        request = "commit" if commits else "abort"
        self._way.before(request)
        assert self._id is not None
        try:
            self._kafka.end_transaction(self._id, self._epoch, commits=commits)
        except KafkaException as error:
            self._failed = error
            raise
        self._way.after(request)
        self._has_begun = False

    def _transaction(self) -> Transaction:
        assert self._id is not None
        try:
            return self._kafka.transaction(self._id, self._epoch)
        except KafkaException as error:
            self._failed = error
            raise

    def _place(self, topic: str, key: bytes | None, partition: int) -> Partition:
        """Return where a record goes: to its partition, or to the one that its key decides."""
        if partition < 0:
            count = len(self._kafka.topics[topic].logs) if topic in self._kafka.topics else 1
            partition = 0 if key is None else int(murmur2(pa.array([key], pa.binary()))[0] & _POSITIVE) % count
        return topic, partition

    def _without_lost(self, records: Sequence[_Record]) -> list[_Record]:
        """Return records without those that librdkafka loses: see `penstock.kafka.first_writes`.

        Of what is sent together to a partition whose leader does not know the producer, the first half is a batch of its own.
        """
        by_place: dict[Partition, list[_Record]] = {}
        for record in records:
            by_place.setdefault(record.place, []).append(record)
        lost: set[int] = set()
        for place, own in by_place.items():
            if not self._kafka.knows(self._number, place) and self._way.refuses(place):
                lost.update(map(id, own[: len(own) // 2]))
        return [record for record in records if id(record) not in lost]

    def _send(self, transaction: Transaction | None, record: _Record) -> None:
        try:
            self._kafka.produce(record.place, record.key, record.value, record.timestamp, record.headers, transaction)
            self._kafka.learns(self._number, record.place)
        except KafkaException as error:
            self._failed = self._failed or error
            if callable(self._on_delivery):
                self._on_delivery(error.args[0], Message(*record.place))

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._failed
