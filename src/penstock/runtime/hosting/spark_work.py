"""Spark's own work beside the lanes: rows of DataFrames for sources, and the stores of an application as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.epochs.packing import packed
from penstock.epochs.program import Program
from penstock.once import once
from penstock.queries import CommittedState
from penstock.spark.context import LOOPBACK, DataFrame, Spark, SparkSession
from penstock.spark.lane_finders import LaneFinder, LanesHere, LanesOnHosts
from penstock.spark.rows import all_rows, ordered_rows
from penstock.spark.sql import GuardedSql
from penstock.spark.tables import StoreTables
from penstock.state.remote.protocol import Located

Locate = Callable[[int], Located]
"""Returns where lanes are read, for a committed epoch."""


class SparkWork:
    """Runs jobs of an application on its context. `prepare` is called once in every worker.

    `located` says where lanes are read; None if their files are on this host.
    """

    def __init__(self, spark: Spark, program: Program, prepare: Callable[[], None], located: Locate | None) -> None:
        self._spark = spark
        self._program = program
        self._prepare = prepare
        self._located = located
        self._state: CommittedState | None = None

    def rows(self, read: Callable[[SparkSession], DataFrame], order_by: Sequence[str], skip: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of a DataFrame, in order, without the first `skip`."""
        return ordered_rows(self._spark.session, read, order_by, skip)

    def rows_in_any_order(self, read: Callable[[SparkSession], DataFrame]) -> Iterator[dict[str, Any]]:
        """Yield all rows of a DataFrame."""
        return all_rows(self._spark.session, read)

    def query(self, state: CommittedState) -> None:
        """Show the stores of `state` as tables."""
        self._state = state

    def after_commit(self, epoch: int) -> None:
        """Publish the committed epoch to the tables, if there are any."""
        if "tables" in self.__dict__:
            self.tables.after_commit()

    @once
    def tables(self) -> StoreTables:
        """The stores as tables."""
        state, located, session = self._state, self._located, self._spark.session
        assert state is not None
        if located is None:
            finder: LaneFinder = LanesHere(self._program, lambda: state.epoch)
        else:
            driver = session.sparkContext.getConf().get("spark.driver.host", LOOPBACK)
            finder = LanesOnHosts(driver, self._program, lambda: located(state.epoch), state.globals)
        broadcast = session.sparkContext.broadcast(packed(self._program, (self._program, self._prepare)))
        return StoreTables(session, broadcast, state.specs, finder)

    @once
    def sql(self) -> GuardedSql:
        """SQL for external clients."""
        return GuardedSql(self._spark.session, self.tables)

    def close(self) -> None:
        """Close the tables."""
        if "tables" in self.__dict__:
            self.tables.close()
