"""Stores as Spark tables: one task reads each from all lanes, as of the last commit when the task begins.

One task: on a cluster, only one core may be free beside the slots.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.engines.serving import loaded
from penstock.epochs.store_reader import read_store, schema_of
from penstock.errors import UnknownStoreError
from penstock.spark.lane_finders import FindLanes, LaneFinder
from penstock.state import StoreSpec

Batches = Iterator[pa.RecordBatch]


class StoreTables:
    """The tables of an application's stores, on its session; tasks find the lanes through `finder`."""

    def __init__(self, session: SparkSession, broadcast: Any, specs: Mapping[str, StoreSpec], finder: LaneFinder) -> None:
        self.specs = specs
        self._session = session
        self._broadcast = broadcast
        self._finder = finder
        self._lock = threading.Lock()
        self._child: SparkSession | None = None

    def table(self, store: str, session: SparkSession | None = None) -> DataFrame:
        """Return a store as a DataFrame; each use reads it again."""
        if store not in self.specs:
            raise UnknownStoreError(f"Unknown store {store!r}. Known stores: {', '.join(sorted(self.specs)) or 'none'}.")
        one_task = (session or self._session).range(0, 1, 1, 1)
        task = reading_task(self._broadcast, self.specs[store].name, self._finder.opened())
        return one_task.mapInArrow(task, from_arrow_schema(schema_of(self.specs[store])))

    def sql(self, text: str) -> DataFrame:
        """Return the result of a query, in which stores are tables; in a session of its own."""
        with self._lock:
            if self._child is None:
                self._child = self._session.newSession()
            child = self._child
        self.show(child, text)
        return child.sql(text)

    def show(self, session: SparkSession, text: str) -> None:
        """Make the stores that a query mentions visible to a session."""
        known = {table.name for table in session.catalog.listTables() if table.isTemporary}
        mentioned = text.lower()
        for store in self.specs:
            if store.lower() in mentioned and store not in known:
                self.table(store, session).createOrReplaceTempView(quoted(store))

    def after_commit(self) -> None:
        """Tell tasks what is committed; does nothing while there is no table."""
        self._finder.after_commit()

    def close(self) -> None:
        """Let tables no longer be read."""
        self._finder.close()


def reading_task(broadcast: Any, store: str, find: FindLanes) -> Callable[[Batches], Batches]:
    """Return the task that reads a store; its input row is only a trigger."""

    def read(batches: Batches) -> Batches:
        for _ in batches:
            pass
        program = loaded(broadcast.value)  # which our own driver has pickled
        return read_store(program, store, find(program))

    return read


def quoted(name: str) -> str:
    """Return a name quoted for SQL, whatever its characters."""
    return f"`{name.replace('`', '``')}`"
