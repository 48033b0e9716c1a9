"""`Writer`: sends the rows of a transaction to the leaders of their partitions, as one of several writers.

Batches have numbers in their partition, from 0 on in every transaction, so that a batch that is sent again after a lost answer
is written once. A second writer under the same numbers would be taken for the same: rows that were written once must never be
written again under the same producer epoch, but under the next one, after the transaction was aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest
from aiokafka.structs import TopicPartition
from confluent_kafka import KafkaError

from penstock.errors import BrokerError
from penstock.faults import point
from penstock.kafka.writers.batches import Format, Identity, batches
from penstock.kafka.writers.brokers import PASSING, TRANSACTION, Brokers, NoAnswerError, first_error, refused
from penstock.records import Partition

REQUEST_BYTES = 16 << 20
"""About how much goes into one request."""

_TIMEOUT_MS = 10_000
_ALL_REPLICAS = -1
_DONE = frozenset({KafkaError.NO_ERROR, KafkaError.DUPLICATE_SEQUENCE_NUMBER})
_PASSING = PASSING | {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
}
"""Errors after which the same batch is sent again."""


class Writer:
    """Writes rows through a connection."""

    def __init__(self, brokers: Brokers, form: Format) -> None:
        self._brokers = brokers
        self._form = form

    def open(self, identity: Identity, partitions: Collection[Partition]) -> None:
        """Add partitions to the transaction."""
        if partitions:
            self._brokers.run(self._open(identity, partitions))

    def write(
        self,
        identity: Identity,
        rows: Mapping[Partition, pa.Table],
        opened: Collection[Partition] = (),
        first: Mapping[Partition, int] | None = None,
    ) -> None:
        """Write rows to their partitions; when this returns, brokers have them, but no reader sees them before the commit.

        `opened` are the partitions that were added already, `first` the numbers of the first rows, 0 unless given.
        """
        numbers = first or {}
        encoded = {
            place: batches(own, identity, numbers.get(place, 0), self._form) for place, own in rows.items() if own.num_rows
        }
        self.open(identity, encoded.keys() - opened)
        point("writer.after_open")
        if encoded:
            self._brokers.run(self._write(identity, encoded))
        point("writer.after_write")

    async def _open(self, identity: Identity, partitions: Collection[Partition]) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            by_topic.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            identity.transactional_id, identity.producer_id, identity.producer_epoch, list(by_topic.items())
        )
        what = "Cannot add partitions to the transaction"
        try:
            answer = await self._brokers.ask(TRANSACTION, identity.transactional_id, request, first_error, what)
        except NoAnswerError as error:
            raise BrokerError(f"{error}.") from error
        if code := first_error(answer):
            topics = [topic for topic, entries in answer.errors if any(found == code for _, found in entries)]
            raise refused(code, f"{what}, of topic {topics[0]!r}")

    async def _write(self, identity: Identity, encoded: Mapping[Partition, Iterator[bytes]]) -> None:
        """Send one batch of each partition at a time: the next one after the answer, because they have to arrive in order."""
        client = await self._brokers.knowing({topic for topic, _ in encoded})
        waiting = {place: first for place, rest in encoded.items() if (first := next(rest, None)) is not None}
        attempts = self._brokers.attempts()
        while waiting:
            by_leader = self._by_leader(client, waiting)
            rounds = [self._send(identity, node, {place: waiting[place] for place in own}) for node, own in by_leader.items()]
            codes = {place: code for sent in await asyncio.gather(*rounds) for place, code in sent.items()}
            point("writer.mid_write")
            for place in [place for place, code in codes.items() if code in _DONE]:
                following = next(encoded[place], None)
                if following is None:
                    del waiting[place]
                else:
                    waiting[place] = following
            failed = {place: code for place, code in codes.items() if code not in _DONE}
            for place, code in failed.items():
                if code not in _PASSING:
                    raise refused(code, f"Cannot write to {place[0]}-{place[1]}")
            if not failed and codes:
                attempts = self._brokers.attempts()
            elif attempts.are_over:
                names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(waiting)[:3])
                raise BrokerError(f"The leaders of {names} have accepted nothing for {self._brokers.patience_s:g} s.")
            else:
                await attempts.pause()
                await client.force_metadata_update()

    @staticmethod
    def _by_leader(client: Any, waiting: Mapping[Partition, bytes]) -> dict[int, list[Partition]]:
        """Return what each broker receives next; partitions without a leader wait."""
        found: dict[int, list[Partition]] = {}
        sizes: dict[int, int] = {}
        for place, batch in waiting.items():
            node = client.cluster.leader_for_partition(TopicPartition(*place))
            if node is None or node == -1 or sizes.get(node, 0) > REQUEST_BYTES:
                continue
            found.setdefault(node, []).append(place)
            sizes[node] = sizes.get(node, 0) + len(batch)
        return found

    async def _send(self, identity: Identity, node: int, own: Mapping[Partition, bytes]) -> dict[Partition, int]:
        """Send a batch to each of these partitions; return the error code of each."""
        by_topic: dict[str, list[tuple[int, bytes]]] = {}
        for (topic, partition), batch in own.items():
            by_topic.setdefault(topic, []).append((partition, batch))
        request = ProduceRequest(identity.transactional_id, _ALL_REPLICAS, _TIMEOUT_MS, list(by_topic.items()))
        try:
            answer = await self._brokers.send(node, request)
        except NoAnswerError:
            return dict.fromkeys(own, KafkaError.NETWORK_EXCEPTION)
        return {(topic, entry[0]): entry[1] for topic, entries in answer.topics for entry in entries}
