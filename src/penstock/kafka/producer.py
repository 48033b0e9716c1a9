"""`RowProducer`: hands rows to librdkafka as fast as it takes them, and keeps the first delivery failure.

It knows neither transactions nor offsets; the publishers do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock import machine
from penstock.errors import BrokerError, PenstockError
from penstock.kafka.clients import for_client
from penstock.kafka.failures import configured_wrongly, failure, translated
from penstock.kafka.first_writes import FirstWrites
from penstock.kafka.opening import clients
from penstock.kafka.partition_counts import PartitionCounts
from penstock.kafka.partitioner import are_by_key, with_all_names, with_partitions
from penstock.kafka.statistics import OnStatistics, with_statistics

logger: logging.Logger = logging.getLogger(__name__)

EARLIEST_TIMESTAMP = 1
"""librdkafka takes 0 for "now", so a timestamp of 0 is sent as 1."""

_CHUNK = 10_000
_CHUNK_BYTES = 16 << 20
"""At most this many rows, and about this many bytes, are Python objects at a time."""
_QUEUE_FULL_WAIT_S = 0.05
_DELIVERY_WAIT_S = 1.0
_PROBE_S = 1.0


class RowProducer:
    """A producer of rows (see `penstock.kafka`), whose `name` is an index into `topics`."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topics: Sequence[str],
        broker_timeout_ms: int,
        clock: Callable[[], float] = machine.monotonic,
        on_statistics: OnStatistics | None = None,
    ) -> None:
        self._topics = list(topics)
        self._broker_timeout = broker_timeout_ms / 1_000
        self._clock = clock
        self._failure: tuple[str, KafkaError] | None = None
        self._failed = 0
        self._out_of_reach_since: float | None = None
        self.had_trouble: bool = False
        """Whether a connection has failed since this client was created."""
        callbacks = {"on_delivery": self._on_delivery, "error_cb": self._on_error}
        try:
            own = with_statistics({**for_client(settings), **callbacks}, on_statistics)
            self.client: Producer = clients().producer(own)
        except KafkaException as error:
            raise configured_wrongly(error) from None
        self._counts = PartitionCounts(self.client, self._broker_timeout, clock)
        self._first_writes = FirstWrites(clock)
        self._turn = 0

    def begin(self) -> None:
        """Forget delivery failures of earlier rows."""
        self._failure, self._failed = None, 0

    def produce(self, rows: pa.RecordBatch) -> None:
        """Hand over the rows; whether they were delivered is known only after a flush.

        What goes to a partition first goes alone, see `FirstWrites`.
        """
        rows, topics = self._with_partitions(rows)
        first = self._first_writes.among(rows, topics)
        try:
            if len(first):
                self._deliver(rows.take(pa.array(first)), topics)
                left = np.ones(rows.num_rows, bool)
                left[first] = False
                rows = rows.filter(pa.array(left))
            self._hand_over(rows, topics)
        except (KafkaException, SystemError) as error:
            raise translated(error, "Cannot send records") from error

    def delivery_failure(self, wait_s: float = 0.0) -> PenstockError | None:
        """Return the first delivery failure as an error that names the topic; wait up to `wait_s` for its report."""
        if self._failure is None:
            with suppress(KafkaException, SystemError):  # a fatal error, which the caller already has
                self.client.poll(wait_s)
        if self._failure is None:
            return None
        topic, error = self._failure
        return failure(error, f"Topic {topic!r} ({self._failed} record(s) not delivered)")

    def check(self) -> None:
        """Serve callbacks while idle; raise if no broker has been reachable for `broker_timeout`."""
        self.poll()
        since = self._out_of_reach_since
        if since is None:
            return
        try:
            self.client.list_topics(timeout=_PROBE_S)
        except KafkaException:
            if self.is_out_of_reach_too_long:
                raise BrokerError(f"No broker has been reachable for {self._clock() - since:.0f} s.") from None
        else:
            self.is_in_reach()

    def poll(self) -> None:
        """Serve pending callbacks."""
        try:
            self.client.poll(0)
        except (KafkaException, SystemError) as error:
            raise translated(error, "The producer failed") from error

    @property
    def is_out_of_reach_too_long(self) -> bool:
        """Whether no broker has been reachable for `broker_timeout`."""
        since = self._out_of_reach_since
        return since is not None and self._clock() - since >= self._broker_timeout

    def is_in_reach(self) -> None:
        """Note that a broker has answered."""
        self._out_of_reach_since = None

    def _with_partitions(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[str]]:
        """Return the rows with a topic by index and a partition each, and these topics."""
        rows, topics = with_all_names(rows, self._topics)
        by_key = are_by_key(rows)
        if by_key.any():
            names = np.unique(rows.column("name").to_numpy(zero_copy_only=False)[by_key]).tolist()
            rows = with_partitions(rows, topics, self._counts.of([topics[name] for name in names]), self._turn)
            self._turn += rows.num_rows
        return rows, topics

    def _deliver(self, rows: pa.RecordBatch, topics: Sequence[str]) -> None:
        """Hand over rows and wait for their delivery. If it fails, whoever ends the transaction hears of it."""
        self._hand_over(rows, topics)
        while self.client.flush(_DELIVERY_WAIT_S) and self._failure is None:
            self._require_reach()
        if self._failure is None:
            self._first_writes.delivered(rows, topics)

    def _hand_over(self, rows: pa.RecordBatch, topics: Sequence[str]) -> None:
        produce = self.client.produce
        size = max(1, min(_CHUNK, _CHUNK_BYTES * rows.num_rows // max(rows.nbytes, 1)))
        for start in range(0, rows.num_rows, size):
            for row in _arguments(rows.slice(start, size), topics):
                try:
                    produce(*row)
                except BufferError:
                    self._produce_when_there_is_room(row)
            self.client.poll(0)

    def _produce_when_there_is_room(self, row: tuple[Any, ...]) -> None:
        while True:
            self._require_reach()
            self.client.poll(_QUEUE_FULL_WAIT_S)
            try:
                self.client.produce(*row)
            except BufferError:
                continue
            return

    def _require_reach(self) -> None:
        if self.is_out_of_reach_too_long:
            raise BrokerError("No broker has been reachable for too long: cannot send the rows of an epoch.")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed += 1
            if self._failure is None:
                self._failure = (message.topic() or "?", error)

    def _on_error(self, error: KafkaError) -> None:
        self.had_trouble = True
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._out_of_reach_since is None:
            self._out_of_reach_since = self._clock()
            logger.warning("no broker is reachable: %s", error.str())
        else:
            logger.debug("%s: %s", error.name(), error.str())


def _arguments(rows: pa.RecordBatch, topics: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    """Return the arguments of `produce` for each row, by position: keywords would take a third longer."""
    columns = [
        _topic_of(rows, topics),
        rows.column("value").to_pylist(),
        rows.column("key").to_pylist(),
        rows.column("partition").to_pylist(),
        repeat(None),
        repeat(None),
        pc.if_else(pc.equal(rows.column("timestamp"), 0), EARLIEST_TIMESTAMP, rows.column("timestamp")).to_pylist(),
    ]
    headers = rows.column("headers")
    if headers.null_count < len(headers):
        columns.append(pairs(headers))
    return zip(*columns)  # noqa: B905 - repeat has no end


def _topic_of(rows: pa.RecordBatch, topics: Sequence[str]) -> Iterator[str] | list[str]:
    names = rows.column("name").to_pylist()
    if len(set(names)) == 1:
        return repeat(topics[names[0]])
    return [topics[name] for name in names]


def pairs(headers: Any) -> list[list[tuple[str, bytes | None]]]:
    """The headers of each row, read by column: building a dictionary per header would take longer than sending it."""
    each = headers.flatten()
    pairs = list(zip(each.field("name").to_pylist(), each.field("value").to_pylist(), strict=True))
    ends = np.cumsum(pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)).tolist()
    return [pairs[start:end] for start, end in zip([0, *ends], ends)]  # noqa: B905 - the last end starts nothing
