"""Limits the input and the output of an epoch's tasks, measured per batch, never per record.

A task above its limit does not fail: it returns a single row that says so.
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
"""The size of the batches that a task yields."""

Sizes = dict[int, tuple[int, int]]
"""Records and their bytes, by origin."""


class Measured(msgspec.Struct, array_like=True, frozen=True):
    """What a task reports about sizes: what it has read and, if the epoch has to be smaller, why.

    `bytes_out` is the size of its output, if that was too large.
    """

    sizes: Sizes = {}
    too_large: str = ""
    bytes_out: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Measured).decode


class OverBoundError(Exception):
    """A task is above its limit; caught where the row for the driver is made."""

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
    """Yield the output of `work` for the batches, and a row about sizes; or only that row, if there is too much.

    `schema` is that of the output. `is_input` says that the batches are records as read from topics.
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
        yield from _row(Measured(too_large=f"A task ran out of memory ({type(error).__name__}: {error})."), schema)
    else:
        yield from in_pieces(table)
        if sizes:
            yield from _row(Measured(sizes), schema)


def in_pieces(table: pa.Table, size: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of about `size` bytes."""
    for batch in table.to_batches():
        rows = max(1, size * batch.num_rows // max(batch.nbytes, 1))
        if batch.num_rows <= rows:
            yield batch
            continue
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def measured_in(table: pa.Table) -> list[Measured]:
    """Return the measurements among the rows of an epoch."""
    return [
        _decode(value) for value in table.filter(pc.equal(table.column("kind"), int(Kind.MEASURE))).column("value").to_pylist()
    ]


def measure_row(measured: Measured) -> pa.Table:
    """Return a measurement as a row."""
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
        if epoch.attempt.most_bytes and total > epoch.attempt.most_bytes:
            records = sum(each.num_rows for each in taken)
            reason = f"A task has read {total} bytes in {records} records, more than the limit of {epoch.attempt.most_bytes}."
            raise OverBoundError(Measured(sizes, reason))
    return taken, sizes


def _check_output(epoch: Epoch, table: pa.Table, sizes: Sizes) -> None:
    size = table.nbytes
    if epoch.attempt.most_bytes and size > epoch.attempt.most_bytes:
        reason = f"A task's output has {size} bytes in {table.num_rows} rows, more than the limit of {epoch.attempt.most_bytes}."
        raise OverBoundError(Measured(sizes, reason, size))


def _add(sizes: Sizes, batch: pa.RecordBatch) -> None:
    """Add a batch to the sizes of its origins."""
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
