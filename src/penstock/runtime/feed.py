"""`Feed`: the records of epochs, read ahead by the driver's consumer, and the jobs of epochs that get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from penstock.config import Config
from penstock.engines.port import Engine
from penstock.epochs.hops import INPUT
from penstock.epochs.program import Epoch, Program
from penstock.kafka.clients import input_settings
from penstock.kafka.input_reader import InputReader
from penstock.kafka.statistics import OnStatistics
from penstock.records import Partition
from penstock.runtime.attempts import Ranges
from penstock.runtime.inputs import Input
from penstock.runtime.time_order import OrderedInput, is_needed, is_timed

_EPOCHS_KEPT = 2
"""How many epochs of records are kept: those of the current epoch, and those of the next, which are read meanwhile."""

_RECORD = pa.schema([INPUT.field(name) for name in ("key", "value", "timestamp", "headers")])


class Feed:
    """Reads the source topics of a program.

    `ends` requests the ends of topics from the brokers; `on_statistics` receives the statistics of the consumer that reads them.
    """

    def __init__(
        self,
        config: Config,
        program: Program,
        ends: Callable[[], Mapping[Partition, int]],
        on_statistics: OnStatistics | None = None,
    ) -> None:
        self._config = config
        self._program = program
        self._ends = ends
        self._on_statistics = on_statistics
        self._source_of: dict[str, int] = {}
        self._reader: InputReader | None = None

    def open(self, offsets: Mapping[Partition, int], most_bytes: int) -> Input:
        """Start to read at `offsets`, for epochs of at most about `most_bytes`."""
        settings = input_settings(self._config, self._program.application_id)
        most = _EPOCHS_KEPT * self._config.max_epoch_records, _EPOCHS_KEPT * most_bytes
        self._reader = InputReader(settings, offsets, *most, self._on_statistics)
        is_ordered = is_needed(offsets, is_timed(self._program))
        return OrderedInput(self._reader, self._ends) if is_ordered else self._reader

    def read_too(self, source_of: Mapping[str, int]) -> None:
        """Add topics that are read from now on, each with its source."""
        self._source_of |= source_of

    def records(self, epoch: Epoch, ranges: Ranges) -> list[pa.RecordBatch]:
        """Return the records in ranges of offsets, with the codes of their sources and partitions."""
        codes = {origin: code for code, origin in enumerate(epoch.origins)}
        return [
            coded(batch, self._source_of[partition[0]], codes[partition]) for partition, batch in self._opened.between(ranges)
        ]

    def record(self, partition: Partition, offset: int) -> pa.Table:
        """Return one record: key, value, timestamp, headers."""
        found = [batch for _, batch in self._opened.between({partition: (offset, offset + 1)})]
        return pa.Table.from_batches([batch.select(_RECORD.names) for batch in found], _RECORD)

    @property
    def _opened(self) -> InputReader:
        assert self._reader is not None
        return self._reader


def coded(batch: pa.RecordBatch, source: int, origin: int) -> pa.RecordBatch:
    """Return records of a partition with the codes of their source and of the partition."""
    size = batch.num_rows
    columns = {
        "name": pa.array(np.full(size, source, np.int16)),
        "origin": pa.array(np.full(size, origin, np.int32)),
        **{name: batch.column(name) for name in ("offset", "timestamp", "key", "value", "headers")},
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in INPUT.names], schema=INPUT)


class FedJobs:
    """The jobs of epochs: an engine runs them, with records of a feed."""

    def __init__(self, engine: Engine, feed: Feed) -> None:
        self._engine = engine
        self._feed = feed

    def run(self, epoch: Epoch, is_small: bool, ranges: Ranges) -> pa.Table:
        """See `Jobs.run`."""
        return self._engine.run(epoch, self._feed.records(epoch, ranges), is_small=is_small)

    def tick(self, epoch: Epoch) -> pa.Table:
        """See `Jobs.tick`."""
        return self._engine.run(epoch, [], is_small=True)

    def roll_back(self, epoch: Epoch) -> None:
        """See `Jobs.roll_back`."""
        self._engine.roll_back(epoch)

    def read(self, partition: Partition, offset: int) -> pa.Table:
        """See `Jobs.read`."""
        return self._feed.record(partition, offset)
