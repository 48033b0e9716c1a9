"""An epoch of a lane: many records, arriving as Arrow batches, walked in one call.

Records are merged as Kafka Streams' partition group does: always the lowest event time at the head of a source partition,
offsets in order within each. So the result does not depend on the order in which blocks arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.lanes.lane import Lane
from penstock.lanes.position import NOWHERE, Rows
from penstock.lanes.sources import Intake
from penstock.records import NO_HEADERS, Headers, RecordMetadata

RECORDS = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ]
)
"""Records on their way into a lane; `source` is the node that reads them.

`timestamp` is the event time: whoever reads the topic has applied the source's extractor, because the order in which records
are merged depends on it.
"""


def walk(lane: Lane, batches: Iterable[pa.RecordBatch]) -> None:
    """Run an epoch's records through a lane, up to and including the flush of its caches."""
    table = pa.Table.from_batches(list(batches), RECORDS)
    if table.num_rows:
        records = _merged(table)
        _walk_records(lane, records)
    lane.position = NOWHERE
    lane.flush()


def _merged(table: pa.Table) -> pa.Table:
    """The records in processing order."""
    topics = table.column("topic").combine_chunks().dictionary_encode()
    names = topics.dictionary.to_pylist()
    rank = np.argsort(np.argsort(names)) if len(names) > 1 else np.zeros(1, dtype=np.int64)
    topic = rank[topics.indices.to_numpy(zero_copy_only=False)]
    partition = table.column("partition").to_numpy()
    offset = table.column("offset").to_numpy()
    origin_of = topic * (int(partition.max()) + 1) + partition
    if (origin_of == origin_of[0]).all() and (np.diff(offset) > 0).all():
        return table
    by_origin = np.lexsort((offset, origin_of))
    origins = origin_of[by_origin]
    highest = table.column("timestamp").to_numpy()[by_origin].copy()
    starts = np.flatnonzero(np.diff(origins, prepend=origins[0] - 1))
    for start, end in zip(starts, [*starts[1:], len(origins)], strict=True):
        np.maximum.accumulate(highest[start:end], out=highest[start:end])
    return table.take(pa.array(by_origin[np.argsort(highest, kind="stable")]))


def _walk_records(lane: Lane, records: pa.Table) -> None:
    """Run after run of records of one source."""
    position = Rows([records.column(name) for name in ("topic", "partition", "offset")])
    lane.position = position
    source = records.column("source").combine_chunks().dictionary_encode()
    codes = source.indices.to_numpy(zero_copy_only=False)
    names = source.dictionary.to_pylist()
    if len(names) == 1:
        _walk_run(lane, position, lane.intakes[names[0]], records, 0)
        return
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, end in pairwise(edges):
        _walk_run(lane, position, lane.intakes[names[codes[start]]], records.slice(start, end - start), start)


def _walk_run(lane: Lane, position: Rows, intake: Intake, records: pa.Table, first: int) -> None:
    """Records of one source, decoded by column and handed to the lane one after the other."""
    keys, values, timestamps, headers = _decoded(intake, records)
    process = intake.process
    rows = range(first, first + len(keys))
    lane.position = position
    if not lane.has_processors:  # then nobody asks for the time, and no punctuator can be waiting
        for position.row, key, value, timestamp, header in zip(rows, keys, values, timestamps, headers, strict=False):
            process(key, value, timestamp, header)
        latest = max(timestamps)
        lane.stream_time = max(lane.stream_time, latest)
        return
    for position.row, key, value, timestamp, header in zip(rows, keys, values, timestamps, headers, strict=False):
        lane.position = position
        lane.stream_time = max(lane.stream_time, timestamp)
        process(key, value, timestamp, header)
        lane.punctuate()


def _decoded(intake: Intake, records: pa.Table) -> tuple[list[Any], list[Any], list[int], Iterable[Headers]]:
    timestamps: list[int] = records.column("timestamp").to_pylist()
    try:
        keys = _column(intake.key, records.column("key"))
        values = _column(intake.value, records.column("value"))
    except Exception:
        _name_the_culprit(intake, records)
        raise
    column = records.column("headers")
    headers: Iterable[Headers] = (
        repeat(NO_HEADERS)
        if column.null_count == len(column)
        else [tuple((item["name"], item["value"]) for item in row or ()) for row in column.to_pylist()]
    )
    return keys, values, timestamps, headers


def _name_the_culprit(intake: Intake, records: pa.Table) -> None:
    """Decode one by one, for an error that says which record it was."""
    for row in records.to_pylist():
        intake.values(RecordMetadata(row["topic"], row["partition"], row["offset"]), row["key"], row["value"])


def _column(deserialize: Any, column: pa.ChunkedArray) -> list[Any]:
    raw: Sequence[Any] = column.to_pylist()
    if column.null_count:
        return [None if data is None else deserialize(data) for data in raw]
    return list(map(deserialize, raw))
