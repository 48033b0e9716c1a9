"""`SharedPublisher`: publishes an epoch whose rows executors have written; the driver writes what is left, and commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from penstock.config import Config
from penstock.kafka.clients import producer_settings
from penstock.kafka.partitioner import are_by_key, by_partition, with_all_names, with_partitions
from penstock.kafka.writers.batches import Format
from penstock.kafka.writers.brokers import Brokers
from penstock.kafka.writers.transactions import Transactions
from penstock.kafka.writers.writer import Writer
from penstock.settings import revealed

if TYPE_CHECKING:
    from penstock.kafka.commit import SourceOffset


class Writing(NamedTuple):
    """What a process needs to write: the settings of the connection, the format of batches, and how long brokers may be away."""

    settings: Mapping[str, Any]
    form: Format
    patience_s: float

    @classmethod
    def of(cls, config: Config, limits: Collection[int]) -> Writing:
        """Return that of an application; `limits` are the size limits of the topics that it writes to."""
        settings = revealed(producer_settings(config, limits))
        form = Format.of(str(settings["compression.type"]), int(settings["batch.size"]))
        return cls(settings, form, config.broker_timeout_ms / 1_000)

    def writer(self) -> tuple[Brokers, Writer]:
        """Return a connection, and a writer that uses it."""
        brokers = Brokers(self.settings, self.patience_s)
        return brokers, Writer(brokers, self.form)


class SharedPublisher:
    """Publishes each epoch in a transaction in which executors have written; see `Transactions`."""

    def __init__(self, writing: Writing, transactional_id: str, group_id: str, topics: Sequence[str], timeout_ms: int) -> None:
        self._brokers, writer = writing.writer()
        self._group_id = group_id
        self._topics = topics
        self.transactions: Transactions = Transactions(self._brokers, writer, transactional_id, timeout_ms)

    def start(self) -> None:
        """Take over from any other instance."""
        self.transactions.take_over()

    def begin(self) -> None:
        """Begin a transaction, unless the epoch's job has begun it."""
        if not self.transactions.is_open:
            self.transactions.begin()

    def produce(self, rows: pa.RecordBatch) -> None:
        """Write rows that executors have left to the driver."""
        named, topics = with_all_names(rows, self._topics)
        counts = self._brokers.run(self._brokers.partition_counts({topics[code] for code in _open_names(named)}))
        self.transactions.write(by_partition(with_partitions(named, topics, counts), topics))

    def send_offsets(self, offsets: Sequence[SourceOffset]) -> None:
        """Add the offsets of the application's group to the transaction."""
        self.transactions.send_offsets(self._group_id, offsets)

    def commit(self) -> bool:
        """Commit the transaction; return False if the outcome is not known yet."""
        return self.transactions.commit()

    def abort(self) -> None:
        """Abort the transaction."""
        self.transactions.abort()

    def check(self) -> None:
        """Do nothing: there is no client that has to be served while idle."""

    def close(self) -> None:
        """Close the connections. A transaction that is open is left to the brokers: it may already be committed."""
        self._brokers.close()


def _open_names(rows: pa.RecordBatch) -> set[int]:
    """Return the topics of rows whose partition the key decides, by index."""
    return set(rows.filter(pa.array(are_by_key(rows))).column("name").to_pylist())
