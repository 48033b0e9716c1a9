"""Rows between hops, and rows out: what an epoch's records look like as Arrow tables on their way through Spark."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lanes.epoch import HEADERS, RECORDS
from penstock.records import Headers


class Kind(IntEnum):
    """What a row is."""

    RECORD = 0
    SINK = 1
    CHANGELOG = 2
    DEAD_LETTER = 3
    CONTROL = 4
    REPORT = 5


OUT = pa.schema(
    [
        pa.field("kind", pa.int8()),
        pa.field("name", pa.int16()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""Rows for Kafka, and what tasks tell the driver. `name` is an index into `Program.topics`, or -1 where `topic` says it."""

_RECORD_ONLY = ("origin", "offset", "place", "path", "stream_time")

WIRE = pa.schema([pa.field("lane", pa.int32()), *OUT, *(RECORDS.field(name) for name in _RECORD_ONLY)])
"""Rows between hops: records for a later stage (`name` is their source), and rows for Kafka that only pass through."""


class LaneReport(msgspec.Struct, array_like=True, frozen=True):
    """What a lane had to do in one stage of an epoch.

    The rest is told in epochs that are sampled: the worker's process and its memory in bytes, records and seconds of each node,
    entries and bytes of each store.
    """

    lane: int
    stage: int
    records: int
    seconds: float
    worker: int = 0
    memory: int = 0
    nodes: dict[str, tuple[int, float]] = {}
    stores: dict[str, tuple[int, int]] = {}


class Control(msgspec.Struct, array_like=True, frozen=True):
    """What a task tells the driver besides rows: highest event times by origin, what was dropped, and what waits.

    `due` is when something waits for the wall clock, `event_due` for the watermark. `watermarks` are those of the origins whose
    source has a strategy.
    """

    high_times: dict[int, int] = {}
    due: int | None = None
    dropped: list[tuple[str, str, int]] = []
    event_due: int | None = None
    watermarks: dict[int, int] = {}


_encode = msgspec.msgpack.Encoder().encode
decode_control = msgspec.msgpack.Decoder(Control).decode
_decode_report = msgspec.msgpack.Decoder(LaneReport).decode


def control_row(control: Control, lane: int) -> pa.Table:
    """A control row."""
    return wire(1, lane=[lane], kind=[Kind.CONTROL], value=[_encode(control)])


def report_row(report: LaneReport) -> pa.Table:
    """A lane's report as a row; apart from what a lane tells to be heeded, because no two runs give the same one."""
    return wire(1, lane=[report.lane], kind=[Kind.REPORT], value=[_encode(report)])


def reports_of(table: pa.Table) -> list[LaneReport]:
    """The lanes' reports among the rows that leave an epoch."""
    return list(map(_decode_report, table.filter(_is_report(table)).column("value").to_pylist()))


def without_reports(table: pa.Table) -> pa.Table:
    """The other rows: what an epoch gives whenever and wherever it runs."""
    return table.filter(pc.invert(_is_report(table)))


def _is_report(table: pa.Table) -> Any:
    return pc.equal(table.column("kind"), int(Kind.REPORT))


def wire(rows: int, **columns: Any) -> pa.Table:
    """A table of rows between hops; columns that are not given are null."""
    arrays = [_array(columns.get(field.name), field.type, rows) for field in WIRE]
    return pa.Table.from_arrays(arrays, schema=WIRE)


def _array(column: Any, kind: pa.DataType, rows: int) -> Any:
    if column is None:
        return pa.nulls(rows, kind)
    return column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column, kind)


def headers_array(headers: Sequence[Headers]) -> Any:
    """Headers as a column; null where there are none."""
    if not any(headers):
        return pa.nulls(len(headers), HEADERS)
    return pa.array([[{"name": name, "value": value} for name, value in row] if row else None for row in headers], HEADERS)


def arrived(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Batches as Spark hands them over, as a table of that schema: Spark has its own names inside lists, and its own nulls."""
    if not batches:
        return schema.empty_table()
    table = pa.Table.from_batches(batches)
    columns = [_as_headers(table.column(name)) if name == "headers" else table.column(name) for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


def _as_headers(column: pa.ChunkedArray) -> Any:
    if column.null_count == len(column):
        return pa.nulls(len(column), HEADERS)
    lists = column.combine_chunks()
    names, values = lists.values.flatten()
    entries = pa.StructArray.from_arrays([names, values], ["name", "value"])
    return pa.ListArray.from_arrays(lists.offsets, entries, HEADERS, mask=lists.is_null())


def records_of(table: pa.Table) -> pa.Table:
    """The record rows as a lane takes them in."""
    columns = [table.column("name" if name == "source" else name) for name in RECORDS.names]
    return pa.Table.from_arrays(columns, schema=RECORDS)


def out_rows(kind: Kind, name: int, partition: int, timestamp: int, key: bytes, value: bytes) -> pa.Table:
    """One row out."""
    row = {"kind": int(kind), "name": name, "partition": partition, "timestamp": timestamp, "key": key, "value": value}
    return pa.Table.from_pylist([row], schema=OUT)
