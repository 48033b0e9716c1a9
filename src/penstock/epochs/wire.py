"""Rows between hops, and rows out: an epoch's records as Arrow tables on their way between slots and the driver."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lanes.epoch import HEADERS, RECORDS, processing_order
from penstock.metrics import MetricReport


class Kind(IntEnum):
    """What a row is."""

    RECORD = 0
    SINK = 1
    CHANGELOG = 2
    DEAD_LETTER = 3
    CONTROL = 4
    REPORT = 5
    MEASURE = 6
    CHANGE = 7
    """A change that an atomic section has made in a lane on another host."""


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
        pa.field("stage", pa.int8()),
        *(RECORDS.field(name) for name in ("origin", "offset", "place", "path")),
    ]
)
"""Rows for Kafka, and reports of tasks to the driver. `name` is an index into `Program.topics`, or `OTHER_TOPIC`
if `topic` has the name.

The last columns are the stage that has sent a row, and the row's place in the order of the records that caused it; see
`in_order_of_causes`.
"""

OTHER_TOPIC = -1
"""The `name` of a row whose topic is not one of the program's."""

WIRE = pa.schema([pa.field("shard", pa.int32()), *OUT, RECORDS.field("stream_time")])
"""Rows between hops: records for a later stage (`name` is their source), and rows for Kafka that only pass through."""


_PLACES = ["origin", "offset", "place", "path", "timestamp"]


class LaneReport(msgspec.Struct, array_like=True, frozen=True):
    """The work of a lane in one stage of an epoch. `write_id` is that of its store, "" for a stage without lanes.

    On a cluster, `host` is where the lane runs.

    Only sampled epochs have the fields from `worker` to `stores`: the worker's process and its memory in bytes, records and
    seconds of each node, entries and bytes of each store.
    """

    lane: int
    stage: int
    records: int
    seconds: float
    worker: int = 0
    memory: int = 0
    nodes: dict[str, tuple[int, float]] = {}
    stores: dict[str, tuple[int, int]] = {}
    write_id: str = ""
    host: str = ""


class Control(msgspec.Struct, array_like=True, frozen=True):
    """What a task reports to the driver besides rows: highest event times by origin, counts of drops, and what is due.

    `due` is the earliest wall-clock time, `event_due` the earliest watermark that something waits for. `watermarks` are those of
    origins whose source declares one. `wants_commit` says that a processor has requested a commit. `metrics` are those of user
    code. A task that writes to Kafka reports the rows of each partition as `written` (topic by index, partition, count), and as
    `left_out` those that were too large.
    """

    high_times: dict[int, int] = {}
    due: int | None = None
    dropped: list[tuple[str, str, int]] = []
    event_due: int | None = None
    watermarks: dict[int, int] = {}
    wants_commit: bool = False
    metrics: list[MetricReport] = []
    written: list[tuple[int, int, int]] = []
    left_out: int = 0


_encode = msgspec.msgpack.Encoder().encode
decode_control: Callable[[bytes], Control] = msgspec.msgpack.Decoder(Control).decode
_decode_report = msgspec.msgpack.Decoder(LaneReport).decode


def control_row(control: Control, shard: int) -> pa.Table:
    """Return a control row; the shard is one of the lane that sends it."""
    return wire(1, shard=[shard], kind=[Kind.CONTROL], value=[_encode(control)])


def rows_about(shard: int, report: LaneReport, control: Control | None) -> pa.Table:
    """Return a lane's report and its control row, if any: separate rows, because no two runs give the same report."""
    rows = [(Kind.REPORT, _encode(report)), *([] if control is None else [(Kind.CONTROL, _encode(control))])]
    kinds, values = zip(*rows, strict=True)
    return wire(len(rows), shard=[shard] * len(rows), kind=kinds, value=values)


def reports_of(table: pa.Table) -> list[LaneReport]:
    """Return the lanes' reports among the rows that leave an epoch."""
    found = table.filter(pc.equal(table.column("kind"), int(Kind.REPORT)))
    return list(map(_decode_report, found.column("value").to_pylist()))


def in_order_of_causes(table: pa.Table) -> pa.Table:
    """Order the rows that leave an epoch: changelog rows before sink records; all by stage, sink records also by cause.

    So the results of one source partition reach a sink in its order, whatever lanes they went through. A stage processes all
    records before the next one begins, so that its changes of a table come before those of the next stage.
    """
    kinds, stages = table.column("kind").to_numpy(), table.column("stage").to_numpy()
    is_sent = (kinds == Kind.SINK) | (kinds == Kind.DEAD_LETTER)
    sent, others = np.flatnonzero(is_sent), np.flatnonzero(~is_sent)
    if len(sent) > 1:
        order, _ = processing_order(table.select(_PLACES).take(pa.array(sent)), stages[sent])
        sent = sent if order is None else sent[order]
    whole = np.concatenate([others[np.argsort(stages[others], kind="stable")], sent])
    return table if (np.diff(whole) == 1).all() else table.take(pa.array(whole))


def in_order_of_stages(table: pa.Table) -> pa.Table:
    """Move changelog rows after those of earlier stages; other rows keep their order."""
    is_changelog = table.column("kind").to_numpy() == Kind.CHANGELOG
    stages = np.where(is_changelog, table.column("stage").to_numpy(), -1)
    return table if (np.diff(stages) >= 0).all() else table.take(pa.array(np.argsort(stages, kind="stable")))


def wire(rows: int, **columns: Any) -> pa.Table:
    """Return a table of rows between hops; columns that are not given are null."""
    columns.setdefault("stage", np.zeros(rows, np.int8))
    arrays = [_array(columns.get(field.name), field.type, rows) for field in WIRE]
    return pa.Table.from_arrays(arrays, schema=WIRE)


def _array(column: Any, kind: pa.DataType, rows: int) -> Any:
    if column is None:
        return pa.nulls(rows, kind)
    return column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column, kind)


def out_rows(kind: Kind, name: int, partition: int, timestamp: int, key: bytes, value: bytes) -> pa.Table:
    """Return one row that leaves the epoch."""
    row = {
        "kind": int(kind),
        "stage": 0,
        "name": name,
        "partition": partition,
        "timestamp": timestamp,
        "key": key,
        "value": value,
    }
    return pa.Table.from_pylist([row], schema=OUT)


def out(table: pa.Table) -> pa.Table:
    """Return the columns of rows that leave the epoch."""
    return table.select(OUT.names)
