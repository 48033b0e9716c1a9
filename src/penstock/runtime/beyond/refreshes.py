"""Global tables of DataFrames: a refresh brings the rows into a topic of the application's own, which the table reads.

It compares the rows with the topic and publishes only what differs, in one transaction: epochs see all of it or nothing. One that
fails changes nothing, and is tried again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from penstock import machine
from penstock.errors import PenstockError, ProcessingError
from penstock.kafka.commit import Committer
from penstock.observation import Recorder
from penstock.runtime.beyond.row_records import Row, RowRecord, batch_of, record_maker
from penstock.spark.failures import own_text
from penstock.topology import Contents, SourceNode

_log = logging.getLogger(__name__)

_BATCH = 20_000
_RETRY_S = 30.0
_STOP_S = 30.0
_LONGEST_WAIT_S = 3_600.0
"""A wait has a limit, which an interval does not have."""

Entry = tuple[bytes, bytes | None]


class Table(NamedTuple):
    """A global table of a DataFrame: its store, the source that feeds it, and its rows."""

    store: str
    source: SourceNode
    contents: Contents

    @property
    def topic(self) -> str:
        """The topic that has the rows."""
        return self.source.topics[0]


@dataclass(frozen=True, slots=True)
class Access:
    """How a refresh reads the rows of a DataFrame and the entries of a topic, and publishes: a committer is for one commit.

    An open committer keeps other instances from writing, so that entries read meanwhile stay the last ones.
    """

    rows: Callable[[Contents], Iterable[Row]]
    entries: Callable[[str], Iterable[Entry]]
    committer: Callable[[], AbstractContextManager[Committer]]


class Difference(NamedTuple):
    """What has to be published, and how many rows there are then."""

    changed: list[RowRecord]
    gone: list[RowRecord]
    rows: int


def difference(entries: Iterable[Entry], records: Iterable[RowRecord], now_ms: int) -> Difference:
    """Compare the records that a topic should have with the entries that it has; raise if two records have one key."""
    known: dict[bytes, bytes] = {}
    for key, value in entries:
        if value is None:
            known.pop(key, None)
        else:
            known[key] = _digest(value)
    changed: list[RowRecord] = []
    seen: set[bytes] = set()
    for record in records:
        if record.value is None:
            continue
        if record.key is None or record.key in seen:
            what = "a row has no key" if record.key is None else f"several rows have the key {record.key!r}"
            raise ValueError(f"{what}; leave them out, or choose keys that tell them apart")
        seen.add(record.key)
        if known.get(record.key) != _digest(record.value):
            changed.append(record)
    return Difference(changed, [RowRecord(key, None, now_ms) for key in known if key not in seen], len(seen))


def _digest(value: bytes) -> bytes:
    """Return what stands for a value, so that a table is not kept in memory a second time."""
    return hashlib.blake2b(value, digest_size=16).digest()


class Refreshes:
    """The refreshes of an application's tables, one after the other."""

    def __init__(self, application_id: str, tables: Iterable[Table], access: Access, recorder: Recorder) -> None:
        self._tables = list(tables)
        self._access = access
        self._recorder = recorder
        self._due: dict[str, float] = {}
        self._stopping = machine.event()
        self._thread = machine.thread(self._run, f"penstock-{application_id}-refreshes")

    @property
    def are_loaded(self) -> bool:
        """Whether all tables have been filled before."""
        return all(self._is_loaded(table) for table in self._tables)

    def start(self) -> None:
        """Refresh all tables, then go on in a thread. Raises if one fails whose table was never filled."""
        for table in self._tables:
            self._try(table)
        if self._due:
            self._thread.start()

    def stop(self) -> None:
        """Stop; a refresh that is being published is completed, another one is given up."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        while self._due and not self._stopping.wait(
            min(_LONGEST_WAIT_S, max(0.0, min(self._due.values()) - machine.monotonic()))
        ):
            for table in self._tables:
                if self._due.get(table.store, float("inf")) <= machine.monotonic() and not self._stopping.is_set():
                    self._try(table)

    def _try(self, table: Table) -> None:
        """Refresh a table, and note when the next time is."""
        every_ms = table.contents.refresh_ms
        try:
            self._refresh(table)
        except PenstockError as error:
            if self._stopping.is_set():
                return
            if not self._thread.is_alive() and not self._is_loaded(table):
                raise
            wait_s = _RETRY_S if every_ms is None else min(_RETRY_S, every_ms / 1_000)
            self._recorder.tables.refreshed(table.store, error)
            what = "the global table %s keeps its rows, because they cannot be read again; retrying in %g s. Check its source: %s"
            _log.warning(what, table.store, wait_s, error)
        else:
            self._recorder.tables.refreshed(table.store)
            if every_ms is None:
                self._due.pop(table.store, None)
                return
            wait_s = every_ms / 1_000
        self._due[table.store] = machine.monotonic() + wait_s

    def _refresh(self, table: Table) -> None:
        """Bring the topic up to date."""
        now_ms = machine.now_ms()
        try:
            with self._access.committer() as committer:
                make = record_maker(table.source, table.topic, lambda row: (*table.contents.entry(row), now_ms))
                records = map(make, self._until_stopped(self._access.rows(table.contents)))
                found = difference(self._access.entries(table.topic), records, now_ms)
                published = [*found.changed, *found.gone]
                if published:
                    committer.write(_batches(table.topic, published))
        except PenstockError:
            raise
        except Exception as error:
            raise ProcessingError(
                f"{table.source.name} cannot read the rows of {table.store!r}: {type(error).__name__}: {own_text(str(error))}\n"
                f"  the node was declared at {table.source.line}"
            ) from error
        _log.info("%s: %d rows, %d new or changed, %d deleted", table.topic, found.rows, len(found.changed), len(found.gone))

    def _until_stopped(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            if self._stopping.is_set():
                raise ProcessingError("The application is being stopped.")
            yield row

    def _is_loaded(self, table: Table) -> bool:
        return any(True for _ in self._access.entries(table.topic))


def _batches(topic: str, records: Iterable[RowRecord]) -> Iterator[pa.RecordBatch]:
    left = iter(records)
    while some := list(islice(left, _BATCH)):
        yield batch_of(topic, some)
