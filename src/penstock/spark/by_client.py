"""Reads records in Spark's tasks with our own client, if Spark's reader cannot: it has no type for some timestamps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.epochs.hops import INPUT
from penstock.lanes.epoch import headers_array
from penstock.records import Headers, Partition

Record = tuple[str, int, int, bytes | None, bytes | None, int, Headers]
ReadRecords = Callable[[Mapping[Partition, int], Mapping[Partition, int]], Iterable[Record]]
"""`read(positions, ends)`: topic, partition, offset, key, value, timestamp and headers of each record in between."""

_ROWS = 10_000
_SCHEMA = pa.schema([*INPUT, pa.field("partition", pa.int32())])


class Part(NamedTuple):
    """A range of records of a partition: the codes of their source and origin, and their offsets."""

    source: int
    origin: int
    partition: Partition
    begin: int
    end: int


def frame_of(session: SparkSession, read: ReadRecords, parts: Sequence[Part]) -> DataFrame:
    """Return all records of the parts in the columns of `INPUT`, with their partitions; each task reads one part."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in [number for batch in batches for number in batch.column(0).to_pylist()]:
            yield from batches_of(read, parts[number])

    return session.range(0, len(parts), 1, len(parts)).mapInArrow(task, from_arrow_schema(_SCHEMA))


def batches_of(read: ReadRecords, part: Part) -> Iterator[pa.RecordBatch]:
    """Read the records of a part."""
    records = iter(read({part.partition: part.begin}, {part.partition: part.end}))
    while rows := list(islice(records, _ROWS)):
        _, _, offsets, keys, values, timestamps, headers = zip(*rows, strict=True)
        columns = {
            "name": [part.source] * len(rows),
            "origin": [part.origin] * len(rows),
            "offset": offsets,
            "timestamp": timestamps,
            "key": keys,
            "value": values,
            "headers": headers_array(headers),
            "partition": [part.partition[1]] * len(rows),
        }
        arrays = [pa.array(columns[field.name], field.type) for field in _SCHEMA]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
