"""Executors write: the last hop of an epoch sends its rows to Kafka, in the transaction that the driver has begun.

The rows of a partition all go to one task, which writes them in the order of their causes. What it does not write, it returns:
dead letters, rows for topics that records choose, and reports.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.config import Config
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import OUT, Control, Kind, arrived, control_row, decode_control, in_order_of_causes, out
from penstock.errors import FencedError, PenstockError
from penstock.kafka.limits import SizeLimits
from penstock.kafka.partitioner import by_partition, with_partitions
from penstock.kafka.preflight import Preflight
from penstock.kafka.writers.publisher import SharedPublisher, Writing
from penstock.kafka.writers.transactions import Shared, Transactions, require_producer_epochs
from penstock.kafka.writers.writer import Writer
from penstock.records import Partition
from penstock.spark.tasks import Batches, Hop, program_of, program_run_once

_writers: dict[str, Writer] = {}


class WriteStage:
    """The last stage of epochs, in which executors write. `limits` are the size limits of topics."""

    def __init__(self, program: Program, transactions: Transactions, writing: Writing, limits: Mapping[str, int]) -> None:
        self._program = program
        self._transactions = transactions
        self._writing = writing
        self._limits = dict(limits)

    def before(self, broadcast: Any, hop: Hop, epoch: Epoch) -> Hop:
        """Return the hop before this stage, with partitions for rows whose keys decide them."""
        counts = epoch.partitions or {}

        def placed(batches: Batches) -> Batches:
            topics = program_of(broadcast).topics
            return (with_partitions(batch, topics, counts) for batch in hop(batches))

        return placed

    def begin(self, broadcast: Any) -> Hop:
        """Begin a transaction; return the hop that writes in it, and returns what it does not write, and a report."""
        shared, writing, limits = self._transactions.begin(), self._writing, self._limits

        def hop(batches: Batches) -> Batches:
            program = program_run_once(broadcast)
            rows = [batch.filter(batch.column("kind").is_valid()) for batch in batches]  # without the anchor
            return iter(write(program, _writer(program, writing), shared, limits, arrived(rows, OUT)).to_batches())

        return hop

    def explained(self, error: FencedError) -> PenstockError:
        """Return why tasks were refused."""
        return self._transactions.explained(error)

    def done(self, table: pa.Table) -> None:
        """Note what tasks have written, as they report it."""
        self._transactions.wrote(written_in(table, self._program.topics))


def require_shared_transactions(config: Config) -> None:
    """Raise if executors cannot log in to the brokers, or the brokers cannot tell one transaction of a producer from the next."""
    brokers, _ = Writing.of(config, ()).writer()
    try:
        require_producer_epochs(brokers)
    finally:
        brokers.close()


def shared_publisher(config: Config, program: Program, limits: Mapping[str, int]) -> tuple[SharedPublisher, WriteStage]:
    """Return the publisher of an application whose executors write, and the stage in which they do."""
    writing = Writing.of(config, limits.values())
    application_id = program.application_id
    publisher = SharedPublisher(writing, application_id, application_id, program.topics, config.transaction_timeout_ms)
    return publisher, WriteStage(program, publisher.transactions, writing, limits)


def write(program: Program, writer: Writer, shared: Shared, limits: Mapping[str, int], rows: pa.Table) -> pa.Table:
    """Write rows in the order of their causes; return those that the driver has to write, and a report."""
    own, others = _divided(in_order_of_causes(rows))
    largest = max(limits.values())
    sizes = SizeLimits(limits, largest, largest, lambda topic: None)  # the driver checks letters again, for their topics
    preflight = Preflight(program.topics, sizes, program.handlers.production)
    checked = list(map(preflight.check, own.to_batches()))
    kept, letters = _divided(pa.Table.from_batches(checked, OUT))
    groups = by_partition(kept, program.topics)
    writer.write(shared.identity, groups, shared.opened)
    codes = program.topic_codes
    counts = [(codes[topic], partition, group.num_rows) for (topic, partition), group in groups.items()]
    report = Control(written=counts, left_out=own.num_rows - kept.num_rows - letters.num_rows)
    return pa.concat_tables([others, letters, out(control_row(report, 0))])


def written_in(table: pa.Table, topics: Sequence[str]) -> dict[Partition, int]:
    """Return how many rows tasks have written to each partition, as they report it."""
    is_control = table.column("kind").to_numpy() == Kind.CONTROL
    controls = map(decode_control, table.filter(pa.array(is_control)).column("value").to_pylist())
    return {(topics[name], partition): count for control in controls for name, partition, count in control.written}


def _divided(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that a task writes: for topics of the program, with their partition; and the others."""
    kinds, names = rows.column("kind").to_numpy(), rows.column("name").fill_null(-1).to_numpy()
    is_placed = rows.column("partition").is_valid().to_numpy()
    is_own = ((kinds == Kind.SINK) | (kinds == Kind.CHANGELOG)) & (names >= 0) & is_placed
    return rows.filter(pa.array(is_own)), rows.filter(pa.array(np.logical_not(is_own)))


def _writer(program: Program, writing: Writing) -> Writer:
    """Return the writer of this process, which keeps its connections."""
    if program.incarnation not in _writers:
        _writers.clear()
        brokers, writer = writing.writer()
        atexit.register(brokers.close)
        _writers[program.incarnation] = writer
    return _writers[program.incarnation]
