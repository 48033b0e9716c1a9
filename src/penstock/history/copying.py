"""Copies of changelogs: records as batches of rows, which are published in transactions of limited size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock import machine
from penstock.epochs.wire import OTHER_TOPIC, OUT, Kind
from penstock.kafka.commit import Committer, SourceOffset
from penstock.kafka.records import TopicRecord

ROWS = pa.schema([OUT.field(name) for name in ("key", "value", "timestamp", "headers")])
"""What is copied of a record; its partition stays the same."""

_BATCH_ROWS, _BATCH_BYTES = 10_000, 8 << 20
_MOST_ROWS, _MOST_BYTES = 20_000, 32 << 20
"""A transaction is committed when it has so much: a broker aborts one that is open for long."""


def batches_of(records: Iterable[TopicRecord]) -> Iterator[pa.RecordBatch]:
    """Yield records as batches of rows, in order."""
    rows: list[dict[str, Any]] = []
    size = 0
    for record in records:
        headers = [{"name": name, "value": value} for name, value in record.headers] or None
        rows.append({"key": record.key, "value": record.value, "timestamp": record.timestamp, "headers": headers})
        size += len(record.key or b"") + len(record.value or b"")
        if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(rows, schema=ROWS)
            rows, size = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=ROWS)


class Copies:
    """Publishes rows to partitions of topics, in transactions of limited size.

    `on_full` is called after each transaction that was committed because it was full, with the number of rows so far.
    """

    def __init__(self, committer: Committer, on_full: Callable[[int], None]) -> None:
        self._committer = committer
        self._on_full = on_full
        self._waiting: list[pa.RecordBatch] = []
        self.rows: int = 0

    def add(self, topic: str, partition: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows; all of them are committed by the next `commit` at the latest."""
        for rows in batches:
            self._waiting.append(_addressed(rows, topic, partition))
            self.rows += rows.num_rows
            if self._is_full:
                self.commit()
                self._on_full(self.rows)

    def commit(self, offsets: Sequence[SourceOffset] = ()) -> None:
        """Commit all rows that were added, with the offsets."""
        rows, self._waiting = self._waiting, []
        self._committer.write(rows, offsets)

    @property
    def _is_full(self) -> bool:
        rows = sum(int(batch.num_rows) for batch in self._waiting)
        return rows >= _MOST_ROWS or sum(int(batch.nbytes) for batch in self._waiting) >= _MOST_BYTES


def one_row(key: bytes, value: bytes) -> list[pa.RecordBatch]:
    """Return a single row of now."""
    row = {"key": key, "value": value, "timestamp": machine.now_ms()}
    return [pa.RecordBatch.from_pylist([row], schema=ROWS)]


def _addressed(rows: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
    """Return rows as they are published to a partition."""
    count = rows.num_rows
    common = {"kind": int(Kind.CHANGELOG), "stage": 0, "name": OTHER_TOPIC, "topic": topic, "partition": partition}
    columns = [
        rows.column(field.name)
        if field.name in ROWS.names
        else pa.repeat(pa.scalar(common[field.name], field.type), count)
        if field.name in common
        else pa.nulls(count, field.type)
        for field in OUT
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OUT)
