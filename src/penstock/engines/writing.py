"""Executors write: the slots of a cluster send an epoch's rows to Kafka, in the transaction that the driver has begun.

The rows of a partition all go to one slot, which writes them in the order of their causes. What it does not write, it returns:
dead letters, rows for topics that records choose, and reports.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.config import Config
from penstock.engines.exchanging import Sending
from penstock.engines.requests import Batches, RowsRequest
from penstock.epochs.in_process import divided
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import OUT, Control, Kind, control_row, decode_control, in_order_of_causes, out
from penstock.errors import FencedError
from penstock.kafka.limits import SizeLimits
from penstock.kafka.partitioner import are_by_key, by_partition, with_partitions
from penstock.kafka.preflight import Preflight
from penstock.kafka.writers.publisher import SharedPublisher, Writing
from penstock.kafka.writers.transactions import Shared, Transactions
from penstock.kafka.writers.writer import Writer
from penstock.records import Partition

_SPREAD = 31
"""Rows of partition 0 of several topics go to several slots."""

_writers: dict[str, Writer] = {}


@dataclass(frozen=True)
class WriteRows:
    """Write rows in a transaction. `limits` are the size limits of topics."""

    shared: Shared
    writing: Writing
    limits: Mapping[str, int]
    reads_topics: ClassVar[bool] = False

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Write them; yield what is not written, and a report."""
        writer = _writer(program, self.writing)
        return iter(write(program, writer, self.shared, self.limits, pa.Table.from_batches(batches, OUT)).to_batches())


class WriteStage:
    """The ending of epochs whose rows executors write. `limits` are the size limits of topics."""

    def __init__(self, program: Program, transactions: Transactions, writing: Writing, limits: Mapping[str, int]) -> None:
        self._program = program
        self._transactions = transactions
        self._writing = writing
        self._limits = dict(limits)

    def sending(self, epoch: Epoch) -> Sending:
        """See `Ending.sending`. All rows may go to one slot: tasks have limited them."""
        return Sending(partial(by_writer, partitions=epoch.partitions or {}), OUT, most_bytes=0)

    def finish(self, carry: Callable[[RowsRequest], pa.Table]) -> pa.Table:
        """See `Ending.finish`: begin a transaction, and write in it; rows that the driver has to write are left, and reports."""
        request = WriteRows(self._transactions.begin(), self._writing, self._limits)
        try:
            table = carry(request)
        except FencedError as error:
            raise self._transactions.explained(error) from error
        self._transactions.wrote(written_in(table, self._program.topics))
        return table

    def abandon(self) -> None:
        """See `Ending.abandon`: abort the transaction, if there is one."""
        if self._transactions.is_open:
            self._transactions.abort()


def by_writer(program: Program, rows: pa.Table, partitions: Mapping[str, int]) -> list[pa.Table]:
    """Return the rows that the slot of each lane writes; `partitions` are counts by topic."""
    placed = pa.Table.from_batches((with_partitions(batch, program.topics, partitions) for batch in rows.to_batches()), OUT)
    return divided(placed, _writing_lanes(program, placed), program.lanes)


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
    is_own = ((kinds == Kind.SINK) | (kinds == Kind.CHANGELOG)) & (names >= 0) & ~are_by_key(rows)
    return rows.filter(pa.array(is_own)), rows.filter(pa.array(np.logical_not(is_own)))


def _writing_lanes(program: Program, rows: pa.Table) -> Any:
    """Return the lane whose slot writes each row: for a changelog, the one that has its shard."""
    kinds = rows.column("kind").to_numpy()
    names, partitions = (rows.column(name).fill_null(0).to_numpy().astype(np.int64) for name in ("name", "partition"))
    of_changelog = partitions * program.lanes // program.shards
    of_sink = (names * _SPREAD + partitions) % program.lanes
    return np.where(kinds == Kind.CHANGELOG, of_changelog, np.where(kinds == Kind.SINK, of_sink, 0))


def _writer(program: Program, writing: Writing) -> Writer:
    """Return the writer of this process, which keeps its connections."""
    if program.incarnation not in _writers:
        _writers.clear()
        brokers, writer = writing.writer()
        atexit.register(brokers.close)
        _writers[program.incarnation] = writer
    return _writers[program.incarnation]
