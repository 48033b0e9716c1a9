"""Processes an epoch of a shard: many records, which arrive as Arrow tables, in one call.

Records are merged as in Kafka Streams' partition group: always the partition whose next record has the lowest event time, by
offset within each, and separately for each shard. So the result depends neither on the order in which blocks arrive nor on which
shards a lane runs. Records that come through an exchange keep the place of the record that caused them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import FAILURES, RegistryError
from penstock.lanes.bound_shard import BoundShard, flush
from penstock.lanes.cursor import AFTER_RECORDS, BEFORE_RECORDS, CursorPosition
from penstock.lanes.entrances import has_replays
from penstock.lanes.gathering import gather
from penstock.lanes.position import NOWHERE, RawRecord, headers_of
from penstock.lanes.sources import Intake
from penstock.records import NO_HEADERS, NO_TIMESTAMP, Headers, Process, RecordMetadata

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))

RECORDS = pa.schema(
    [
        pa.field("source", pa.int16()),
        pa.field("origin", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("place", pa.int64()),
        pa.field("path", pa.int64()),
        pa.field("timestamp", pa.int64()),
        pa.field("stream_time", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""The input records of a lane.

`source` is the node that reads them and `origin` the topic partition they came from, both as an index into a `Catalogue`.
`timestamp` is the event time: the source's extractor has already been applied. Records directly from a topic have no `place`
yet, unless lanes must agree on it; those from an exchange have the place in the merged order of the record that caused them, and
`path` distinguishes them.
`stream_time` is the watermark of their partition before them; null if no source declares one, -1 if it is unknown because a
cache's flush stands for many records.
"""

LAST = 2**63 - 1
"""The place of what is sent after the last record, when caches emit."""

_TURN = 58
"""The number of bits of a place below its turn. A time uses 53 of them."""

FIRST = -1
"""The place of what the wall clock or a watermark sends before the first record."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What the codes in a table of records stand for: source nodes and topic partitions."""

    sources: tuple[str, ...]
    origins: tuple[tuple[str, int], ...]


def walk(bound: BoundShard, records: pa.Table, catalogue: Catalogue, watermark: int | None = None) -> pa.Table:
    """Run an epoch's records through one shard, up to and including the flush of its caches; see `feed`."""
    walked = feed(bound, in_order(records), catalogue, watermark)
    flush([bound])
    return walked


def feed(
    bound: BoundShard, records: pa.Table, catalogue: Catalogue, watermark: int | None = None, values: Values | None = None
) -> pa.Table:
    """Run an epoch's records, which must be in order, through one shard.

    `watermark` is the application's current one. Records that it caused in earlier stages come first and are not late, so the
    lane's watermark advances after them. `values` are the decoded records, if they were decoded already. Return the records that
    were processed; the causes of rows are indexes into them.
    """
    if watermark is None and values is None and records.num_rows and gather(bound, records, catalogue.sources):
        bound.cursor.row = AFTER_RECORDS
        return records
    decoded: dict[int, Feed] = {}
    if records.num_rows and values is None:
        records, values = _readable(bound, records, catalogue)
    if values is not None:
        decoded = {code: (_entrance(bound, catalogue, code, each), each.arriving) for code, each in values.items()}
    if watermark is not None:
        _walk_to_watermark(bound, records, decoded, catalogue, watermark)
    elif records.num_rows:
        _walk_records(bound, records, decoded, catalogue)
    bound.cursor.position = NOWHERE
    bound.cursor.row = AFTER_RECORDS
    return records


def in_order(table: pa.Table) -> pa.Table:
    """Return the records of one shard in processing order, each with its place."""
    if not table.num_rows:
        return table
    order, place = processing_order(table)
    if order is not None:
        table = table.take(pa.array(order))
    return table.set_column(table.schema.get_field_index("place"), "place", pa.array(place))


def processing_order(table: pa.Table, shards: Any = None) -> tuple[Any | None, Any]:
    """Return the order in which records are processed, by shard if `shards` is given, and their places in that order.

    The order is None if the records are already in order.
    """
    origin = table.column("origin").to_numpy()
    offset = table.column("offset").to_numpy()
    carried = table.column("place")
    timestamp = table.column("timestamp").to_numpy()
    is_carried = carried.null_count < len(carried)
    is_one_shard = shards is None or (shards == shards[0]).all()
    if not is_carried and is_one_shard and (origin == origin[0]).all() and (np.diff(offset) > 0).all():
        return None, np.maximum.accumulate(timestamp)
    path = table.column("path").fill_null(0).to_numpy() if is_carried else offset
    group = origin.astype(np.int64) - BEFORE_RECORDS
    if not is_one_shard:
        group |= shards.astype(np.int64) << 40
    head = timestamp
    if is_carried:
        head = np.where(carried.is_valid().to_numpy(), carried.fill_null(0).to_numpy(), timestamp)
        group |= np.maximum(head >> _TURN, 0) << 33
    by_group = np.lexsort((path, offset, group))
    place = highest_by_origin(group[by_group], head[by_group])
    order = np.argsort(place, kind="stable") if is_one_shard else np.lexsort((place, shards[by_group]))
    return by_group[order], place[order]


def in_turn(places: Any, turn: int) -> Any:
    """Move places behind all places of earlier turns; within a turn they keep their order."""
    return (places & ((1 << _TURN) - 1)) | np.maximum(places >> _TURN, turn) << _TURN


def highest_by_origin(origins: Any, times: Any) -> Any:
    """Return the highest time of each record's origin up to the record; records of one origin must be adjacent."""
    highest = times.copy()
    for start, end in runs(origins):
        np.maximum.accumulate(highest[start:end], out=highest[start:end])
    return highest


def runs(origins: Any) -> Iterator[tuple[int, int]]:
    """Return where the records of each origin begin and end; records of one origin must be adjacent."""
    starts = np.flatnonzero(np.diff(origins, prepend=origins[0] - 1))
    return zip(starts, [*starts[1:], len(origins)], strict=True)


def _walk_records(bound: BoundShard, records: pa.Table, decoded: dict[int, Feed], catalogue: Catalogue) -> None:
    """Pass every record, in order, to the source that reads it."""
    position = _enter(bound, records, catalogue)
    if bound.clocks.follow_stream_time or records.column("stream_time").null_count < records.num_rows:
        _walk_timed(bound, position, records, decoded, catalogue, range(records.num_rows))
        return
    cursor = bound.cursor
    if len(decoded) == 1:
        [(process, arriving)] = decoded.values()
        for cursor.row, (key, value, timestamp, header) in zip(range(records.num_rows), arriving, strict=False):
            process(key, value, timestamp, header)
    else:
        for cursor.row, code in enumerate(records.column("source").to_pylist()):
            process, arriving = decoded[code]
            process(*next(arriving))
    bound.clocks.latest = max(bound.clocks.latest, int(records.column("timestamp").to_numpy().max()))


def _walk_to_watermark(
    bound: BoundShard, records: pa.Table, decoded: dict[int, Feed], catalogue: Catalogue, watermark: int
) -> None:
    """Process the records that the watermark caused in earlier stages, then advance it, then process the epoch's own records."""
    results = int(np.count_nonzero(records.column("origin").to_numpy() == BEFORE_RECORDS))
    position = _enter(bound, records, catalogue)
    if results:
        _walk_timed(bound, position, records, decoded, catalogue, range(results))
    bound.cursor.row = BEFORE_RECORDS
    bound.advance_watermark(watermark)
    if results < records.num_rows:
        _walk_timed(bound, position, records, decoded, catalogue, range(results, records.num_rows))


def _enter(bound: BoundShard, records: pa.Table, catalogue: Catalogue) -> CursorPosition:
    """Set the lane's cursor to the start of these records."""
    columns = [records.column(name) for name in ("source", "origin", "offset", "key", "value", "timestamp", "headers")]
    exchanges = [_exchange(bound.intakes.get(name)) for name in catalogue.sources]
    cursor = bound.cursor
    cursor.row = 0
    cursor.position = position = CursorPosition(cursor, columns, catalogue.origins, exchanges)
    return position


def _exchange(intake: Intake | None) -> str | None:
    return intake.node.topics[0] if intake is not None and intake.node.internal else None


def _walk_timed(
    bound: BoundShard, position: CursorPosition, records: pa.Table, decoded: dict[int, Feed], catalogue: Catalogue, rows: range
) -> None:
    """Process some of the records, with exact time at each: nodes may read it, or wait for it."""
    cursor, clocks, watermark = bound.cursor, bound.clocks, bound.clocks.watermark
    stream_times = {code: clocks.stream_time_of(catalogue.sources[code]) for code in decoded}
    some = records.slice(rows.start, len(rows))
    times = _stream_times(some)
    for cursor.row, code, time in zip(rows, some.column("source").to_pylist(), times, strict=False):
        watermark.time = time
        cursor.position = position
        process, arriving = decoded[code]
        key, value, timestamp, headers = next(arriving)
        stream_time = stream_times[code]
        stream_time.reach(timestamp)
        process(key, value, timestamp, headers)
        if stream_time.is_awaited:
            clocks.punctuate(stream_time)
    watermark.time = NO_TIMESTAMP


def _stream_times(records: pa.Table) -> Iterable[int]:
    column = records.column("stream_time")
    if column.null_count == len(column):
        return repeat(NO_TIMESTAMP)
    times: list[int] = column.to_pylist()
    return times


Arriving = tuple[Any, Any, int, Headers]
Feed = tuple[Process, Iterator[Arriving]]
"""Where the records of one source enter, and the records."""


class Read(NamedTuple):
    """The decoded records of one source, and whether some of them are replayed."""

    arriving: Iterator[Arriving]
    has_replays: bool


Values = Mapping[int, Read]
"""Decoded records by the code of the source."""


def read_all(bound: BoundShard, records: pa.Table, catalogue: Catalogue) -> Values | None:
    """Decode the records of several consecutive shards; return None if any of them cannot be decoded.

    The lane may be that of any of those shards.
    """
    try:
        return _values(bound, records, catalogue)
    except RegistryError:
        raise
    except FAILURES:
        return None


def _readable(bound: BoundShard, records: pa.Table, catalogue: Catalogue) -> tuple[pa.Table, Values]:
    """Decode keys and values by source and column; records that cannot be decoded are removed if the handler allows it."""
    try:
        return records, _values(bound, records, catalogue)
    except RegistryError:
        raise
    except FAILURES:
        kept = _without_unreadable(bound, records, catalogue)
        return kept, _values(bound, kept, catalogue)


def _values(bound: BoundShard, records: pa.Table, catalogue: Catalogue) -> Values:
    codes = records.column("source").to_numpy()
    found: dict[int, Read] = {}
    for code in np.unique(codes).tolist():
        intake = bound.intakes[catalogue.sources[code]]
        own = records if (codes == code).all() else records.filter(pa.array(codes == code))
        keys = _column(intake.key, own.column("key"))
        values = _column(intake.value, own.column("value"))
        headers = own.column("headers")
        arriving = zip(keys, values, own.column("timestamp").to_pylist(), _headers(headers), strict=False)
        found[code] = Read(arriving, has_replays(headers))
    return found


def _entrance(bound: BoundShard, catalogue: Catalogue, code: int, values: Read) -> Process:
    intake = bound.intakes[catalogue.sources[code]]
    return bound.entrances.of(intake) if values.has_replays else intake.process


def _headers(column: pa.ChunkedArray) -> Iterable[Headers]:
    if column.null_count == len(column):
        return repeat(NO_HEADERS)
    return map(headers_of, column.to_pylist())


def _without_unreadable(bound: BoundShard, records: pa.Table, catalogue: Catalogue) -> pa.Table:
    """Decode records one by one, so that an error names its record, or the handler can decide to drop it."""
    kept = []
    for row in records.to_pylist():
        intake = bound.intakes[catalogue.sources[row["source"]]]
        topic, partition = catalogue.origins[row["origin"]]
        origin = RecordMetadata(topic, partition, row["offset"])
        kept.append(_is_readable(bound, intake, origin, row))
    return records.filter(pa.array(kept, pa.bool_()))


def _is_readable(bound: BoundShard, intake: Intake, origin: RecordMetadata, row: dict[str, Any]) -> bool:
    """Whether key and value of a record can be decoded; if not, the handler has decided to drop it."""
    try:
        intake.values(origin, row["key"], row["value"])
    except RegistryError:
        raise
    except Exception as error:
        raw = RawRecord(row["key"], row["value"], row["timestamp"], headers_of(row["headers"]))
        bound.failures.deserialization(intake.node, error, raw, origin)
        return False
    return True


def _column(deserialize: Any, column: pa.ChunkedArray) -> list[Any]:
    raw: Sequence[Any] = column.to_pylist()
    if column.null_count:
        return [None if data is None else deserialize(data) for data in raw]
    return list(map(deserialize, raw))


def headers_array(headers: Sequence[Headers]) -> Any:
    """Return headers as a column; null for records without headers."""
    if not any(headers):
        return pa.nulls(len(headers), HEADERS)
    return pa.array([[{"name": name, "value": value} for name, value in row] if row else None for row in headers], HEADERS)
