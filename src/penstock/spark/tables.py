"""Stores as Spark tables: one task reads each from the lanes' files, as of the last barrier when the task begins.

One task, because epochs need the other slots.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.epochs.home import Home
from penstock.epochs.program import Program
from penstock.epochs.store_reader import read_store, schema_of
from penstock.errors import QueryError, UnknownStoreError
from penstock.spark.tasks import Batches, Hop, program_of
from penstock.state import StoreSpec

_BYTES = 8


class StoreTables:
    """The tables of an application's stores, on its session; `committed` returns the epoch of the last barrier."""

    def __init__(
        self,
        session: SparkSession,
        broadcast: Any,
        program: Program,
        specs: Mapping[str, StoreSpec],
        committed: Callable[[], int],
    ) -> None:
        self.specs = specs
        self._session = session
        self._broadcast = broadcast
        self._committed = committed
        self._is_spread = program.is_spread
        self._note = Home(program.directory, program.application_id).root / "committed"
        self._file: int | None = None
        self._lock = threading.Lock()
        self._child: SparkSession | None = None

    def table(self, store: str, session: SparkSession | None = None) -> DataFrame:
        """Return a store as a DataFrame; each use reads it again."""
        if store not in self.specs:
            raise UnknownStoreError(f"Unknown store {store!r}. Known stores: {', '.join(sorted(self.specs)) or 'none'}.")
        if self._is_spread:
            raise QueryError("Stores are not available as tables or in SQL on a cluster yet. Use views or the query API.")
        self._publish_epoch()
        one_task = (session or self._session).range(0, 1, 1, 1)
        task = reading_task(self._broadcast, store, self._note)
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

    def after_commit(self, epoch: int) -> None:
        """Publish the committed epoch to tasks; does nothing while there is no table."""
        if self._file is not None:
            self._write()

    def close(self) -> None:
        """Close the file; tables can no longer be read."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _publish_epoch(self) -> None:
        """Write the committed epoch to a file from now on: lanes do not know it, because they may be one epoch ahead."""
        with self._lock:
            if self._file is None:
                self._file = os.open(self._note, os.O_WRONLY | os.O_CREAT, 0o600)
        self._write()

    def _write(self) -> None:
        with self._lock:  # so that the last write is the newest
            if self._file is not None:
                os.pwrite(self._file, self._committed().to_bytes(_BYTES, "big", signed=True), 0)


def reading_task(broadcast: Any, store: str, note: Path) -> Hop:
    """Return the task that reads a store; its input row is only a trigger."""

    def committed() -> int:
        return int.from_bytes(note.read_bytes(), "big", signed=True)

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        return read_store(program_of(broadcast), store, committed)

    return read


def quoted(name: str) -> str:
    """Return a name quoted for SQL, whatever its characters."""
    return f"`{name.replace('`', '``')}`"
