"""`Files`: a directory of Parquet files that grows with a topic."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.delivery.rows import columns_of
from penstock.delivery.target import Offsets, Target
from penstock.errors import FencedError
from penstock.records import Delivered

_OFFSETS = b"penstock.offsets"
_HIDDEN = "."


class Files(Target):
    """Delivers a topic as Parquet files: one for each batch, named by its number, with the fields of values as columns.

    Columns `_key`, `_timestamp`, `_partition` and `_offset` come first; the value of a deletion is null in all other columns. A
    file is complete when it appears, and never changes; each has the offsets that follow it in its metadata. `schema` fixes the
    columns; without it each file has the columns of its own records. The directory must be on a file system with hard links.

    Example:
        >>> from penstock.delivery import Files
        >>> Files("lake/orders")
        Files('lake/orders')
    """

    def __init__(self, directory: str | Path, *, schema: pa.Schema | None = None) -> None:
        self._directory = Path(directory)
        self._schema = schema
        self._number = 0
        self._offsets: dict[int, int] = {}

    def open(self, name: str) -> Offsets:
        """See `Target`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for left_over in self._directory.glob(f"{_HIDDEN}*.parquet"):
            left_over.unlink(missing_ok=True)
        numbers = sorted(int(path.stem) for path in self._directory.glob("*.parquet") if path.stem.isdecimal())
        self._number = numbers[-1] + 1 if numbers else 0
        stored = pq.read_schema(self._path(numbers[-1])).metadata[_OFFSETS] if numbers else b"{}"
        self._offsets = {int(partition): offset for partition, offset in json.loads(stored).items()}
        return dict(self._offsets)

    def write(self, rows: Sequence[Delivered], begins: Offsets, ends: Offsets) -> None:
        """See `Target`."""
        table = self._table(rows)
        offsets = {**self._offsets, **ends}
        metadata = {**(table.schema.metadata or {}), _OFFSETS: json.dumps(offsets).encode()}
        table = table.replace_schema_metadata(metadata)
        fresh = self._directory / f"{_HIDDEN}{uuid.uuid4().hex}.parquet"
        try:
            pq.write_table(table, fresh)
            _sync(fresh)
            os.link(fresh, self._path(self._number))  # unlike a rename, it fails if the file exists
        except FileExistsError:
            raise FencedError(f"Another instance has written {self._path(self._number)}.") from None
        finally:
            fresh.unlink(missing_ok=True)
        _sync(self._directory)
        self._number += 1
        self._offsets = offsets

    def close(self) -> None:
        """See `Target`."""

    def __repr__(self) -> str:
        return f"Files({str(self._directory)!r})"

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:012}.parquet"

    def _table(self, rows: Sequence[Delivered]) -> pa.Table:
        values = [{} if row.value is None else columns_of(row.value) for row in rows]
        found: dict[str, list[Any]] = {name: [row.get(name) for row in values] for row in values for name in row}
        own = {
            "_key": [row.key for row in rows],
            "_timestamp": pa.array([row.timestamp for row in rows], pa.timestamp("ms", "UTC")),
            "_partition": pa.array([row.partition for row in rows], pa.int32()),
            "_offset": pa.array([row.offset for row in rows], pa.int64()),
        }
        table = pa.table({**own, **found})
        if self._schema is None:
            return table
        missing = [name for name in self._schema.names if name not in table.column_names]
        for name in missing:
            table = table.append_column(name, pa.nulls(table.num_rows, self._schema.field(name).type))
        return table.select(self._schema.names).cast(self._schema)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
