"""What bounds an epoch in its tasks: how much one takes in and gives back, measured batch by batch and never by record.

A task that finds too much does not fail, which Spark would try four times: it gives back a row that says so, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.epochs.program import Epoch
from penstock.epochs.wire import Kind, wire

BATCH_BYTES = 16 << 20
"""The size of the pieces in which rows travel between Python and the JVM, which holds several of them in direct memory."""

Sizes = dict[int, tuple[int, int]]
"""Records and their bytes, by origin."""


class Measured(msgspec.Struct, array_like=True, frozen=True):
    """What a task tells about sizes: what it has read and, where the epoch has to be smaller, why.

    `bytes_out` is what it would have given back, where that was too much.
    """

    sizes: Sizes = {}
    too_large: str = ""
    bytes_out: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Measured).decode


class OverBoundError(Exception):
    """A task has more than an epoch's task may have; on its way to whoever tells the driver."""

    def __init__(self, measured: Measured) -> None:
        super().__init__(measured.too_large)
        self.measured = measured


def bounded(
    epoch: Epoch,
    batches: Iterable[pa.RecordBatch],
    work: Callable[[list[pa.RecordBatch]], pa.Table],
    schema: pa.Schema,
    is_input: bool = False,
) -> Iterator[pa.RecordBatch]:
    """What `work` makes of the batches, in pieces, with a row about sizes; or only that row, if there is too much.

    `schema` is that of the rows it gives. `is_input` says that the batches are records as they are read from topics.
    """
    try:
        taken, sizes = _taken(epoch, batches, is_input)
        table = work(taken)
        del taken
        _check_output(epoch, table, sizes)
    except OverBoundError as over:
        yield from _row(over.measured, schema)
    except (MemoryError, pa.ArrowCapacityError, pa.ArrowInvalid) as error:
        if isinstance(error, pa.ArrowInvalid) and "overflow" not in str(error):
            raise
        yield from _row(Measured(too_large=f"a task ran out of memory ({type(error).__name__}: {error})"), schema)
    else:
        yield from in_pieces(table)
        if sizes:
            yield from _row(Measured(sizes), schema)


def in_pieces(table: pa.Table, size: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """The rows in batches of about so many bytes: Spark holds a batch as a whole, and more than once."""
    for batch in table.to_batches():
        rows = max(1, size * batch.num_rows // max(batch.nbytes, 1))
        if batch.num_rows <= rows:
            yield batch
            continue
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def measured_in(table: pa.Table) -> list[Measured]:
    """What tasks have told about sizes."""
    return [
        _decode(value) for value in table.filter(pc.equal(table.column("kind"), int(Kind.MEASURE))).column("value").to_pylist()
    ]


def measure_row(measured: Measured) -> pa.Table:
    """What a task tells, as a row."""
    return wire(1, shard=[0], kind=[Kind.MEASURE], value=[_encode(measured)])


def _taken(epoch: Epoch, batches: Iterable[pa.RecordBatch], is_input: bool) -> tuple[list[pa.RecordBatch], Sizes]:
    taken: list[pa.RecordBatch] = []
    sizes: Sizes = {}
    total = 0
    for batch in batches:
        taken.append(batch)
        total += batch.nbytes
        if is_input:
            _add(sizes, batch)
        if epoch.most_bytes and total > epoch.most_bytes:
            records = sum(each.num_rows for each in taken)
            reason = f"a task has read {total} bytes in {records} records and may have {epoch.most_bytes}"
            raise OverBoundError(Measured(sizes, reason))
    return taken, sizes


def _check_output(epoch: Epoch, table: pa.Table, sizes: Sizes) -> None:
    size = table.nbytes
    if epoch.most_bytes and size > epoch.most_bytes:
        reason = f"a task gives back {size} bytes in {table.num_rows} rows and may give {epoch.most_bytes}"
        raise OverBoundError(Measured(sizes, reason, size))


def _add(sizes: Sizes, batch: pa.RecordBatch) -> None:
    """Add a batch to what was read of each origin."""
    if not batch.num_rows:
        return
    origins = batch.column("origin").to_numpy(zero_copy_only=False)
    counts = np.bincount(origins)
    found = np.flatnonzero(counts)
    if len(found) == 1:
        weights = {int(found[0]): batch.nbytes}
    else:
        lengths = _lengths(batch.column("key")) + _lengths(batch.column("value"))
        rest = max(0.0, batch.nbytes - lengths.sum()) / batch.num_rows
        by_origin = np.bincount(origins, weights=lengths + rest)
        weights = {int(origin): int(by_origin[origin]) for origin in found}
    for origin, size in weights.items():
        records, known = sizes.get(origin, (0, 0))
        sizes[origin] = (records + int(counts[origin]), known + size)


def _lengths(column: Any) -> Any:
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)


def _row(measured: Measured, schema: pa.Schema) -> Sequence[pa.RecordBatch]:
    rows: list[pa.RecordBatch] = measure_row(measured).select(schema.names).to_batches()
    return rows
