"""`Engine`: where epochs run. Worker processes of the driver run those that it can feed; Spark runs larger ones.

Worker processes are ready within a second and run an epoch without planning or scheduling it, but one process reads for all of
them. So with few lanes they run every epoch; with many, Spark's tasks read large ones in parallel, as soon as Spark has started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.config import Config
from penstock.epochs.assignment import Assignment
from penstock.epochs.migration import MigrationStep
from penstock.epochs.program import Epoch, Program, has_lanes
from penstock.epochs.restore import ReadChangelog, Restored
from penstock.epochs.standing import Committed
from penstock.errors import ConfigError
from penstock.kafka.clients import input_settings
from penstock.kafka.input_reader import InputReader
from penstock.kafka.statistics import OnStatistics
from penstock.records import Partition
from penstock.runtime.attempts import Jobs, Ranges
from penstock.runtime.inputs import Input, ListedInput, MixedInput
from penstock.runtime.time_order import OrderedInput, is_needed, is_timed
from penstock.telemetry import logs
from penstock.workers.jobs import WorkerJobs
from penstock.workers.pool import WorkerPool

if TYPE_CHECKING:
    from penstock.runtime.spark_engine import SparkEngine
    from penstock.spark.by_client import ReadRecords
    from penstock.spark.hosts import Hosts

FED_LANES = 4
"""With up to this many lanes, worker processes run epochs of any size: the driver reads faster than they process."""

FED_RECORDS = 50_000
"""With more lanes, an epoch of more records is a Spark job."""

_EPOCHS_KEPT = 2
"""How many epochs of records the driver keeps: those of the current epoch, and those of the next, which are read meanwhile."""

_ANY = 2**62

OnProgress = Callable[[Mapping[int, int]], None]


class TaskSetUp(NamedTuple):
    """What every process that runs tasks needs: `prepare` is called once in each, `read` reads records by their offsets.

    A job that takes longer than `patience_s` is given up.
    """

    prepare: Callable[[], None]
    read: ReadRecords
    patience_s: float


def most_by_workers(config: Config, lanes: int) -> int:
    """Return the most records of an epoch that worker processes run; 0 if Spark runs all epochs."""
    if not config.has_workers:
        return 0
    if config.engine == "local":
        return _ANY
    if config.worker_epoch_records is not None:
        return config.worker_epoch_records
    return _ANY if lanes <= FED_LANES else FED_RECORDS


class Engine:
    """Runs the epochs of an application, and reads its input.

    `ends` requests the ends of topics from the brokers; `on_statistics` receives the statistics of the consumer that reads them.
    """

    def __init__(
        self,
        config: Config,
        program: Program,
        tasks: TaskSetUp,
        ends: Callable[[], Mapping[Partition, int]],
        on_statistics: OnStatistics | None = None,
    ) -> None:
        self._config = config
        self._program = program
        self._id = program.application_id
        self._ends = ends
        self._on_statistics = on_statistics
        self._most = most_by_workers(config, program.lanes)
        self._reader: InputReader | None = None
        self._pool: WorkerPool | None = None
        self._workers: WorkerJobs | None = None
        self.spark: SparkEngine | None = None
        """Spark; None if the application runs without it."""
        if self._most:
            size = min(program.lanes, os.cpu_count() or 1)
            self._pool = WorkerPool(program, tasks.prepare, size, logs.pass_on)
            self._workers = WorkerJobs(self._pool, program, self._between, tasks.patience_s)
        if config.engine == "spark":
            from penstock.runtime.spark_engine import SparkEngine  # noqa: PLC0415 - not for the local engine: it loads pyspark

            self.spark = SparkEngine(config, program, tasks.prepare, tasks.read, tasks.patience_s)

    def start(self) -> None:
        """Start processes in the background; Spark only if epochs may need it."""
        if self._pool is not None:
            self._pool.start()
        if self.spark is not None and self._most < _ANY:
            self.spark.open()

    def warm(self, ranges: Mapping[Partition, tuple[int, int]]) -> None:
        """Wait until all processes are ready for an epoch; `ranges` are records that may be read for that."""
        if self._workers is not None:
            self._workers.warm()
        if self.spark is not None and self._most < _ANY:
            self.spark.warm(ranges)

    def close(self) -> None:
        """End all processes."""
        if self._pool is not None:
            self._pool.close()
        if self.spark is not None:
            self.spark.close()

    @property
    def server_of(self) -> Callable[[int], tuple[str, int]] | None:
        """Returns the address of a lane's server; None if lanes are on this host."""
        hosts = self._hosts
        return None if hosts is None else lambda lane: hosts.servers[lane]

    def must_move(self) -> bool:
        """Whether lanes have to move, because executors were added or lost."""
        hosts = self._hosts
        return hosts is not None and has_lanes(self._program) and hosts.have_changed()

    @property
    def _hosts(self) -> Hosts | None:
        return None if self.spark is None or not self._config.is_spread else self.spark.hosts

    def require_spark(self) -> SparkEngine:
        """Return Spark, for SQL and other sources; raises if the application runs without it."""
        if self.spark is None:
            why = "SQL, tables, and sources other than topics need Spark"
            raise ConfigError(f"{why}, but the application runs with engine = local. Set engine to spark.")
        return self.spark

    def open_input(self, offsets: Mapping[Partition, int], most_bytes: int) -> Input:
        """Start to read the source topics at `offsets`, for epochs of at most about `most_bytes`."""
        listed = ListedInput(self._ends)
        if not self._most:
            return listed
        most_records = min(self._most, self._config.max_epoch_records)
        settings = input_settings(self._config, self._id)
        most = _EPOCHS_KEPT * most_records, _EPOCHS_KEPT * most_bytes
        self._reader = InputReader(settings, offsets, *most, self._on_statistics)
        is_ordered = is_needed(offsets, is_timed(self._program))
        read = OrderedInput(self._reader, self._ends) if is_ordered else self._reader
        if self._most == _ANY:
            return read
        return MixedInput(read, listed, self._most, lambda: self.require_spark().is_open)

    def read_too(self, source_of: Mapping[str, int]) -> None:
        """Add topics that are read from now on, each with its source."""
        for part in (self._workers, self.spark):
            if part is not None:
                part.read_too(source_of)

    def restore(self, committed: Committed, read: ReadChangelog, on_progress: OnProgress) -> Sequence[Restored]:
        """Restore all lanes to the committed epoch."""
        host = self._workers or self.require_spark()
        return host.restore(committed, read, on_progress)

    def migrate(self, epoch: Epoch, step: MigrationStep) -> pa.Table:
        """Run a step of a migration on all lanes: where they are on a cluster, and here otherwise; return its rows."""
        if self._config.is_spread:
            return self.require_spark().migrate(epoch, step)
        lanes = range(self._program.lanes)
        return pa.concat_tables(step(Assignment(self._program, epoch, lane=lane)) for lane in lanes)

    # ---- jobs ---------------------------------------------------------------------------------------------------------

    def run(self, epoch: Epoch, is_small: bool, ranges: Ranges, batch_records: int | None) -> pa.Table:
        """Process the records in these ranges of offsets; return the epoch's rows."""
        count = sum(end - begin for begin, end in ranges.values())
        jobs = self._jobs(count) if self._has_read(ranges) else self.require_spark().jobs
        return jobs.run(epoch, is_small, ranges, batch_records)

    def tick(self, epoch: Epoch) -> pa.Table:
        """Run an epoch without records; return its rows."""
        return self._jobs(0).tick(epoch)

    def roll_back(self, epoch: Epoch) -> None:
        """Roll all lanes back, and fence earlier attempts."""
        self._jobs(0).roll_back(epoch)

    def read(self, partition: Partition, offset: int) -> pa.Table:
        """Read one record from its topic."""
        if self._workers is not None:
            found = self._workers.read(partition, offset)
            if found.num_rows or self.spark is None:
                return found
        return self.require_spark().jobs.read(partition, offset)

    def _jobs(self, count: int) -> Jobs:
        if self._workers is not None and (count <= self._most or not self.require_spark().is_open):
            return self._workers
        return self.require_spark().jobs

    def _has_read(self, ranges: Ranges) -> bool:
        """Whether the driver has read these records: of a large backlog, only the beginning."""
        read_to = {} if self._reader is None else self._reader.read_to
        return all(end <= read_to.get(place, 0) for place, (_, end) in ranges.items())

    def _between(self, ranges: Ranges) -> Iterable[tuple[Partition, pa.RecordBatch]]:
        assert self._reader is not None
        return self._reader.between(ranges)
