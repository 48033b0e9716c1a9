"""Spark as an engine: a session that is opened when it is first needed, the jobs of epochs on it, and stores as tables."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.config import Config
from penstock.epochs.global_tables import GlobalTables
from penstock.epochs.migration import MigrationStep
from penstock.epochs.program import Epoch, Program
from penstock.epochs.restore import ReadChangelog, Restored
from penstock.epochs.standing import Committed
from penstock.errors import LaneMovedError, PenstockError
from penstock.kafka.clients import oauth_endpoints, spark_can_log_in, spark_options
from penstock.lane_servers.client import Address, end_servers
from penstock.queries import CommittedState
from penstock.records import Partition
from penstock.settings import Settings, revealed
from penstock.spark.by_client import ReadRecords
from penstock.spark.executors import inspected, refuse_unequal
from penstock.spark.failures import translated
from penstock.spark.hosts import Hosts
from penstock.spark.job import EpochJobs
from penstock.spark.lane_finders import LaneFinder, LanesHere, LanesOnHosts
from penstock.spark.migration import migrated
from penstock.spark.restore import OnProgress, restore
from penstock.spark.rows import all_rows, ordered_rows
from penstock.spark.session import LOOPBACK, DataFrame, SparkSession, has_session, open_session
from penstock.spark.source import GROUP
from penstock.spark.sql import GuardedSql
from penstock.spark.tables import StoreTables
from penstock.spark.tasks import STATE_DIR
from penstock.spark.warming import warm
from penstock.spark.watching import watched
from penstock.telemetry import logs

if TYPE_CHECKING:
    from penstock.spark.writing import WriteStage

_log = logging.getLogger(__name__)

_RESTORES = 3
"""How often lanes are restored if executors are lost meanwhile."""


class SparkEngine:
    """The parts of an application that run on Spark. `prepare` is called once in every Python worker, `read` in tasks."""

    def __init__(
        self, config: Config, program: Program, prepare: Callable[[], None], read: ReadRecords, patience_s: float
    ) -> None:
        self._config = config
        self._program = program
        self._prepare = prepare
        self._read = read
        self._patience_s = patience_s
        self._source_of: dict[str, int] = {}
        self._state: CommittedState | None = None
        self._lock = threading.RLock()
        self._placing = threading.RLock()  # a standby warms executors in one thread, and restores lanes in another
        self._opening: Future[SparkSession] | None = None
        self._is_shared = False
        self._servers: set[Address] = set()
        self.write_stage: WriteStage | None = None
        """The stage in which executors write; None if the driver does."""

    def open(self) -> Future[SparkSession]:
        """Open the session in the background: that takes seconds."""
        with self._lock:
            if self._opening is None:
                self._is_shared = has_session()
                executor = ThreadPoolExecutor(1, "penstock-spark")
                config, program = self._config, self._program
                self._opening = executor.submit(
                    open_session, program.application_id, program.lanes, config.spark, oauth_endpoints(config), logs.pass_on
                )
                executor.shutdown(wait=False)
            return self._opening

    def rows(self, read: Callable[[SparkSession], DataFrame], order_by: Sequence[str], skip: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of a DataFrame, in order, without the first `skip`."""
        return ordered_rows(self.open().result(), read, order_by, skip)

    def rows_in_any_order(self, read: Callable[[SparkSession], DataFrame]) -> Iterator[dict[str, Any]]:
        """Yield all rows of a DataFrame."""
        return all_rows(self.open().result(), read)

    @property
    def is_open(self) -> bool:
        """Whether the session is open, or has failed to open: jobs do not have to wait for it."""
        return self._opening is not None and self._opening.done()

    def close(self) -> None:
        """Close the tables, and the session unless someone else has opened it: then its executors live on without our servers."""
        with self._lock:
            if self._opening is None or self._opening.exception() is not None:
                return
            if "tables" in self.__dict__:
                self.tables.close()
            if self._is_shared:
                end_servers(self._servers, self._program.server_key)
            else:
                self._opening.result().stop()

    def read_too(self, source_of: Mapping[str, int]) -> None:
        """Add topics that are read from now on, each with its source."""
        self._source_of |= source_of
        if "jobs" in self.__dict__:
            self.jobs.read_too(source_of)

    def query(self, state: CommittedState) -> None:
        """Show the stores of `state` as tables."""
        self._state = state

    def join(self, tables: GlobalTables) -> None:
        """Let lanes read global tables: on a cluster, each host reads their topics as far as the driver has."""
        if self.hosts is not None and self._program.global_stores:
            self.hosts.global_topics = lambda: tables.topics(self._read)

    def after_commit(self, epoch: int) -> None:
        """Publish the committed epoch to the tables, if there are any."""
        if "tables" in self.__dict__:
            self.tables.after_commit()

    @property
    def session(self) -> SparkSession:
        """The session; waits until it is open."""
        return self.open().result()

    @cached_property
    def jobs(self) -> EpochJobs:
        """The jobs of epochs."""
        return EpochJobs(
            self.session,
            self._program,
            self._source_of,
            _source_options(self._config, self._program) if spark_can_log_in(self._config) else None,
            self._prepare,
            self._read,
            self._patience_s,
            self.hosts,
        )

    @cached_property
    def hosts(self) -> Hosts | None:
        """Where lanes run; None without a cluster."""
        return Hosts(self.session, self._program.lanes) if self._program.is_spread else None

    @cached_property
    def tables(self) -> StoreTables:
        """The stores as tables."""
        state = self._state
        assert state is not None
        hosts = self.hosts
        if hosts is None:
            finder: LaneFinder = LanesHere(self._program, lambda: state.epoch)
        else:
            finder = LanesOnHosts(_address(self.session), self._program, lambda: hosts.located(state.epoch), state.globals)
        return StoreTables(self.session, self.jobs.broadcast, state.specs, finder)

    @cached_property
    def sql(self) -> GuardedSql:
        """SQL for external clients."""
        return GuardedSql(self.session, self.tables)

    def warm(self, ranges: Mapping[Partition, tuple[int, int]]) -> None:
        """Start executors and their Python workers, and let each load the program, before they are needed.

        On a cluster, a rehearsed epoch reads `ranges`.
        """
        with self._placing:
            broadcast = self.jobs.broadcast
            if self.hosts is not None and not self.hosts.placement:
                self._place(self.hosts)
            one_row_each = self._one_row_each if self.hosts is None else self.hosts.each_lane()
        warm(one_row_each, broadcast)
        if self.hosts is not None and ranges:
            try:
                self.jobs.rehearse(ranges, executors_write=self._config.writers == "executors")
            except PenstockError as error:  # records may be deleted while they are read
                _log.warning("a takeover may take longer, because an epoch cannot be rehearsed: %s", error)

    def restore(self, committed: Committed, read: ReadChangelog, on_progress: OnProgress) -> list[Restored]:
        """Restore all lanes in a job, on a cluster on the executors that it has now."""
        with self._placing:
            broadcast = self.jobs.broadcast
            self.jobs.write_stage = self.write_stage  # a standby has its jobs before it knows who writes
        if self.hosts is None:
            return restore(self._one_row_each, broadcast, committed, read, on_progress)
        for left in reversed(range(_RESTORES)):
            self._place(self.hosts)
            placement, peers = self.hosts.placement, self.hosts.peers()
            lanes, driver = self.hosts.each_lane(), _address(self.session)
            with watched(self.session, self.hosts) as watch:
                try:
                    restored = restore(lanes, broadcast, committed, read, on_progress, driver, placement, peers)
                except Exception as error:
                    if not left or not watch.is_loss(error):
                        raise translated(error) from error
                    _log.warning("an executor was lost while lanes were restored; restoring them again")
                    continue
            self.hosts.servers = {lane.lane: (placement[lane.lane], lane.port) for lane in restored}
            self._servers.update(self.hosts.servers.values())
            return restored
        raise AssertionError

    def migrate(self, epoch: Epoch, step: MigrationStep) -> pa.Table:
        """Run a step of a migration in a job, each lane on its host."""
        assert self.hosts is not None
        with watched(self.session, self.hosts) as watch:
            try:
                return migrated(self.hosts.each_lane(), self.jobs.broadcast, epoch, step)
            except Exception as error:
                if watch.is_loss(error):
                    raise LaneMovedError("An executor was lost.") from error
                raise translated(error) from error

    @property
    def _one_row_each(self) -> DataFrame:
        lanes = self._program.lanes
        return self.session.range(0, lanes, 1, lanes)

    def _place(self, hosts: Hosts) -> None:
        """Place lanes on the executors that there are now; the first time, compare these with the driver."""
        with self._placing:
            is_first = not hosts.placement
            hosts.place()
            _log.info("lanes run on %s", ", ".join(sorted(set(hosts.placement))))
            if is_first:
                refuse_unequal(inspected(hosts.each_lane(), self._program.directory, STATE_DIR))


def _address(session: SparkSession) -> str:
    """Return the address of this process for its tasks."""
    return session.sparkContext.getConf().get("spark.driver.host", LOOPBACK)


def _source_options(config: Config, program: Program) -> Mapping[str, str]:
    timeout = str(config.broker_timeout_ms)
    options = {
        "kafka.fetch.max.wait.ms": "10",  # with the default, an epoch occasionally stalls for a second
        # A task reads tens of thousands of records at once: with the defaults (1 MiB, 500 records) that took twice as long.
        "kafka.max.partition.fetch.bytes": str(8 << 20),
        GROUP: f"spark-kafka-source-{program.incarnation}",
        "kafka.default.api.timeout.ms": timeout,
        "kafkaConsumer.pollTimeoutMs": timeout,
    }
    return Settings({**options, **revealed(spark_options(config))})
