"""Stores as Spark tables: each is read by one task, from the lanes' files, as of the last barrier when the task begins.

One task, because an epoch needs the other slots.
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
from penstock.errors import UnknownStoreError
from penstock.spark.tasks import Batches, Hop, program_of
from penstock.state import StoreSpec

_BYTES = 8


class StoreTables:
    """The tables of an application's stores, on its session; `committed` tells the epoch of the last barrier."""

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
        self._note = Home(program.directory, program.application_id).root / "committed"
        self._file: int | None = None
        self._lock = threading.Lock()
        self._child: SparkSession | None = None

    def table(self, store: str, session: SparkSession | None = None) -> DataFrame:
        """A store as a frame that is read whenever it is used."""
        if store not in self.specs:
            raise UnknownStoreError(f"there is no store {store!r}; there are {', '.join(sorted(self.specs)) or 'none'}")
        self._publish_epoch()
        one_task = (session or self._session).range(0, 1, 1, 1)
        task = reading_task(self._broadcast, store, self._note)
        return one_task.mapInArrow(task, from_arrow_schema(schema_of(self.specs[store])))

    def sql(self, text: str) -> DataFrame:
        """What a query says, in which stores are tables; in a session of its own."""
        with self._lock:
            if self._child is None:
                self._child = self._session.newSession()
            child = self._child
        self.show(child, text)
        return child.sql(text)

    def show(self, session: SparkSession, text: str) -> None:
        """Let a session see the stores that a query mentions."""
        known = {table.name for table in session.catalog.listTables() if table.isTemporary}
        mentioned = text.lower()
        for store in self.specs:
            if store.lower() in mentioned and store not in known:
                self.table(store, session).createOrReplaceTempView(quoted(store))

    def after_commit(self, epoch: int) -> None:
        """Tell tasks which epoch is committed; costs nothing as long as there is no table."""
        if self._file is not None:
            self._write()

    def close(self) -> None:
        """Tables cannot be read any more."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _publish_epoch(self) -> None:
        """From now on a file says which epoch is committed: lanes alone cannot, and they may be one ahead."""
        with self._lock:
            if self._file is None:
                self._file = os.open(self._note, os.O_WRONLY | os.O_CREAT, 0o600)
        self._write()

    def _write(self) -> None:
        with self._lock:  # whoever writes last writes the newest
            if self._file is not None:
                os.pwrite(self._file, self._committed().to_bytes(_BYTES, "big", signed=True), 0)


def reading_task(broadcast: Any, store: str, note: Path) -> Hop:
    """The task that reads a store; the row that starts it means nothing."""

    def committed() -> int:
        return int.from_bytes(note.read_bytes(), "big", signed=True)

    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        return read_store(program_of(broadcast), store, committed)

    return read


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"
