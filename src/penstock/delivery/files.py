"""`Files`: a directory of Parquet files that grows with a topic."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import or_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.delivery.held import Kinds, fit_as_they_are
from penstock.delivery.target import Offsets, Row, Target, columns_of, refuse_new_topic
from penstock.errors import ConfigError, FencedError, PenstockError, TopicError
from penstock.records import Delivered

_NAME, _TOPIC_ID, _OFFSETS = b"penstock.delivery", b"penstock.topic_id", b"penstock.offsets"
"""What the metadata of a file has. Earlier versions wrote the offsets only."""
_HIDDEN = "."
_OWN = _KEY, _TIMESTAMP, _PARTITION, _OFFSET = "_key", "_timestamp", "_partition", "_offset"
_ANEW = "Deliver it to a directory of its own."


class Files(Target):
    """Delivers a topic as Parquet files: one for each batch, named by its number, with the fields of values as columns.

    Columns `_key`, `_timestamp`, `_partition` and `_offset` come first, and a field of such a name is in `value._key` and so on;
    the value of a deletion is null in all other columns. A file is complete when it appears, and never changes; each has its
    topic and the offsets that follow it in its metadata. `schema` fixes the columns; without it each file has the columns of its
    own records, and values that do not fit into one column without being changed are in several files. For other columns,
    `row(key, value)` returns a dict of them. A directory is for one topic. It must be on a file system with hard links.

    Example:
        >>> from penstock.delivery import Files
        >>> Files("lake/orders")
        Files('lake/orders')
    """

    def __init__(
        self, directory: str | Path, *, schema: pa.Schema | None = None, row: Callable[[Any, Any], Row] | None = None
    ) -> None:
        self._directory = Path(directory)
        self._schema = schema
        self._row = row or _own_row
        self._number = 0
        self._offsets: dict[int, int] = {}
        self._name = self._topic_id = self._owner = ""

    def open(self, name: str, topic_id: str = "") -> Offsets:
        """See `Target`. A directory with the records of another delivery is refused by the first write."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for left_over in self._directory.glob(f"{_HIDDEN}*.parquet"):
            left_over.unlink(missing_ok=True)
        numbers = sorted(int(path.stem) for path in self._directory.glob("*.parquet") if path.stem.isdecimal())
        self._number = numbers[-1] + 1 if numbers else 0
        self._owner, stored_id, self._offsets = self._stored(numbers[-1]) if numbers else ("", "", {})
        self._name, self._topic_id = name, topic_id or stored_id
        if self._owner not in {"", name}:
            return {}
        refuse_new_topic(stored_id, topic_id, _ANEW)
        return dict(self._offsets)

    def write(self, rows: Sequence[Delivered], begins: Offsets, ends: Offsets) -> None:
        """See `Target`."""
        if self._owner not in {"", self._name}:
            raise TopicError(f"the directory has the records of {self._owner!r} (application and topic). {_ANEW}")
        written: list[Path] = []
        try:
            for table, offsets in self._tables(rows, ends):  # all of them, before the first one appears
                written.append(self._directory / f"{_HIDDEN}{uuid.uuid4().hex}.parquet")
                pq.write_table(self._with_progress(table, offsets), written[-1])
                _sync(written[-1])
            for path in written:
                os.link(path, self._path(self._number))  # unlike a rename, it fails if the file exists
                self._number += 1
        except FileExistsError:
            raise FencedError(f"Another instance has written {self._path(self._number)}.") from None
        finally:
            for path in written:
                path.unlink(missing_ok=True)
        _sync(self._directory)
        self._offsets = {**self._offsets, **ends}
        self._owner = self._name

    def close(self) -> None:
        """See `Target`."""

    def is_of_record(self, error: Exception) -> bool:
        """See `Target`: whether a value cannot be in a file, or `row` has failed."""
        return not isinstance(error, OSError | MemoryError | PenstockError)

    def __repr__(self) -> str:
        return f"Files({str(self._directory)!r})"

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:012}.parquet"

    def _stored(self, number: int) -> tuple[str, str, dict[int, int]]:
        """The name of the delivery, the id of its topic, and the offsets, as a file has them."""
        found = pq.read_schema(self._path(number)).metadata or {}
        if _OFFSETS not in found:
            raise ConfigError(f"{self._path(number)} was not written by a delivery. Give {self!r} a directory of its own.")
        offsets = {int(partition): offset for partition, offset in json.loads(found[_OFFSETS]).items()}
        return found.get(_NAME, b"").decode(), found.get(_TOPIC_ID, b"").decode(), offsets

    def _tables(self, rows: Sequence[Delivered], ends: Offsets) -> list[tuple[pa.Table, Offsets]]:
        """Return the rows by file, each with the offsets that follow it. Without a schema, types that differ need several."""
        if not rows and self._number > 0:
            return [(pq.read_schema(self._path(self._number - 1)).empty_table(), ends)]
        runs = _runs(rows, self._row)
        tables = [_table(run) for run in runs]
        if self._schema is not None:
            return [(pa.concat_tables([_cast(table, self._schema) for table in tables]), ends)]
        after = [*accumulate(map(_after, runs[:-1]), or_), ends]
        return list(zip(tables, after, strict=True))

    def _with_progress(self, table: pa.Table, offsets: Offsets) -> pa.Table:
        known = json.dumps({**self._offsets, **offsets}).encode()
        metadata = {_NAME: self._name.encode(), _TOPIC_ID: self._topic_id.encode(), _OFFSETS: known}
        return table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for name in schema.names:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, schema.field(name).type))
    return table.select(schema.names).cast(schema)


def _own_row(key: Any, value: Any) -> Row:
    return {} if value is None else columns_of(value)


def _runs(rows: Sequence[Delivered], row_of: Callable[[Any, Any], Row]) -> list[list[tuple[Delivered, Row]]]:
    """Return the rows, each with its key and its fields by column, in runs whose values fit into the same columns."""
    all_columns = [{_KEY: row.key, **_named(row_of(row.key, row.value))} for row in rows]
    names = dict.fromkeys(name for columns in all_columns for name in columns)
    mixed = [name for name in names if not fit_as_they_are(columns.get(name) for columns in all_columns)]
    runs: list[list[tuple[Delivered, Row]]] = [[]]
    together = Kinds()
    for row, columns in zip(rows, all_columns, strict=True):
        kinds = Kinds()
        columns |= {name: kinds.held(columns[name], name) for name in mixed if name in columns}
        if (place := kinds.conflict()) is not None:
            raise ValueError(f"the values of {place!r} have different types, which one column cannot hold")
        both = together.with_all(kinds)
        if both is None:
            runs.append([])
        together = both or kinds
        runs[-1].append((row, columns))
    return runs


def _named(fields: Row) -> Row:
    """Return fields by column. One with the name of one of a file's own columns has `value.` before its name."""
    named = {f"value.{name}" if name in _OWN else name: field for name, field in fields.items()}
    if len(named) < len(fields):
        raise ValueError(f"two fields of the value would be in one column ({', '.join(sorted(named))})")
    return named


def _table(run: Sequence[tuple[Delivered, Row]]) -> pa.Table:
    own = {
        _KEY: _array(_KEY, [columns[_KEY] for _, columns in run]),
        _TIMESTAMP: pa.array([row.timestamp for row, _ in run], pa.timestamp("ms", "UTC")),
        _PARTITION: pa.array([row.partition for row, _ in run], pa.int32()),
        _OFFSET: pa.array([row.offset for row, _ in run], pa.int64()),
    }
    names = dict.fromkeys(name for _, columns in run for name in columns if name not in _OWN)
    return pa.table({**own, **{name: _array(name, [columns.get(name) for _, columns in run]) for name in names}})


def _array(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
        raise ValueError(f"column {name!r}: {error}") from error


def _after(run: Sequence[tuple[Delivered, Row]]) -> dict[int, int]:
    return {row.partition: row.offset + 1 for row, _ in run}


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
