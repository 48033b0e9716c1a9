"""`Feed`: the records of epochs, and the jobs of epochs that get them.

The driver's consumer reads ahead, and hands records to the engine. If many wait, slots read them for themselves (`CatchingUp`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa

from penstock.config import Config
from penstock.engines.port import Engine
from penstock.engines.reading import Reading, coded
from penstock.epochs.hops import INPUT
from penstock.epochs.program import Epoch, Program
from penstock.kafka.clients import input_settings
from penstock.kafka.input_reader import InputReader
from penstock.kafka.range_reader import RangeReader
from penstock.kafka.statistics import OnStatistics
from penstock.records import Partition, Ranges
from penstock.runtime.input.inputs import Input, InputBehind, Offsets, count
from penstock.runtime.input.time_order import OrderedInput, is_needed, is_timed
from penstock.settings import revealed


class CatchingUp(InputBehind):
    """Reads by `reader`, unless more than `most` records wait: then it returns the `ends` of the topics, and reads nothing."""

    def __init__(self, reader: Input, ends: Callable[[], Offsets], most: int) -> None:
        self._reader = reader
        self._ends = ends
        self._most = most
        self._is_far_behind = True

    def wait(self, offsets: Offsets, timeout_s: float) -> Offsets:
        """Wait until there are records after `offsets`; return the offsets up to which there are."""
        if not self._is_far_behind:
            found = self._reader.wait(offsets, timeout_s)
            if count(offsets, found) <= self._most:
                return found
        ends = self._ends()
        reached = {place: max(offset, ends.get(place, offset)) for place, offset in offsets.items()}
        self._is_far_behind = count(offsets, reached) > self._most
        if not self._is_far_behind:
            return self._reader.wait(offsets, timeout_s)
        self._reader.idle(0.0)
        return reached

    def fill(self) -> None:
        """Prepare what was received in the meantime."""
        if not self._is_far_behind:
            self._reader.fill()


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
        self._most_bytes = 0

    def open(self, offsets: Mapping[Partition, int], most_bytes: int) -> Input:
        """Start to read at `offsets`, for epochs of at most about `most_bytes`."""
        self._most_bytes = most_bytes
        most = _EPOCHS_KEPT * self._config.max_epoch_records, _EPOCHS_KEPT * most_bytes
        self._reader = InputReader(self._settings, offsets, *most, self._on_statistics)
        is_ordered = is_needed(offsets, is_timed(self._program))
        source = OrderedInput(self._reader, self._ends) if is_ordered else self._reader
        return CatchingUp(source, self._ends, self._config.large_backlog_records)

    def read_too(self, source_of: Mapping[str, int]) -> None:
        """Add topics that are read from now on, each with its source."""
        self._source_of |= source_of

    def records(self, epoch: Epoch, ranges: Ranges) -> list[pa.RecordBatch]:
        """Return the records in ranges of offsets, with the codes of their sources and partitions."""
        codes = {origin: code for code, origin in enumerate(epoch.origins)}
        return [
            coded(batch, self._source_of[partition[0]], codes[partition]) for partition, batch in self._opened.between(ranges)
        ]

    def has(self, ranges: Ranges) -> bool:
        """Whether the driver has read all of these ranges."""
        read_to = self._opened.read_to
        return all(read_to[place] >= end for place, (_, end) in ranges.items())

    def reading(self, ranges: Ranges) -> Reading:
        """Return how slots read these ranges for themselves."""
        settings = revealed(self._settings)  # slots need them, but pickling would hide secrets
        timeout_s = self._config.broker_timeout_ms / 1_000
        ahead = self._most_bytes // self._program.lanes  # together, slots read about one epoch ahead
        return Reading(ranges, dict(self._source_of), lambda: RangeReader(settings, timeout_s, ahead))

    def record(self, partition: Partition, offset: int) -> pa.Table:
        """Return one record: key, value, timestamp, headers."""
        ranges = {partition: (offset, offset + 1)}
        if self.has(ranges):
            found = [batch for _, batch in self._opened.between(ranges)]
        else:
            with closing(self.reading(ranges).open()) as reader:
                found = [batch for _, batch in reader.read(ranges)]
        return pa.Table.from_batches([batch.select(_RECORD.names) for batch in found], _RECORD)

    @property
    def _settings(self) -> Mapping[str, Any]:
        return input_settings(self._config, self._program.application_id)

    @property
    def _opened(self) -> InputReader:
        assert self._reader is not None
        return self._reader


class FedJobs:
    """The jobs of epochs: an engine runs them, with records of a feed."""

    def __init__(self, engine: Engine, feed: Feed) -> None:
        self._engine = engine
        self._feed = feed

    def run(self, epoch: Epoch, is_small: bool, ranges: Ranges) -> pa.Table:
        """See `Jobs.run`."""
        if self._feed.has(ranges):
            return self._engine.run(epoch, self._feed.records(epoch, ranges), is_small=is_small)
        return self._engine.read(epoch, self._feed.reading(ranges))

    def tick(self, epoch: Epoch) -> pa.Table:
        """See `Jobs.tick`."""
        return self._engine.run(epoch, [], is_small=True)

    def roll_back(self, epoch: Epoch) -> None:
        """See `Jobs.roll_back`."""
        self._engine.roll_back(epoch)

    def read(self, partition: Partition, offset: int) -> pa.Table:
        """See `Jobs.read`."""
        return self._feed.record(partition, offset)
