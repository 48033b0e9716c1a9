"""An epoch of a shard in columns: its records are gathered into the aggregates of their keys, all at once.

Whatever columns cannot be sure of is left to the walk, record by record, before anything is written.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.expressions.columns.documents import read
from penstock.expressions.columns.evaluation import holds, replaced
from penstock.expressions.columns.frames import Frame
from penstock.expressions.columns.scalars import are_scalars, read_scalars
from penstock.expressions.columns.steps import Keep, Replace, Step
from penstock.lanes.bound_shard import BoundShard
from penstock.lanes.columnar import ColumnarPath
from penstock.lanes.entrances import has_replays
from penstock.lanes.settling import Arrived, Changes, Keys, Table, changed, keys_of, settle
from penstock.lanes.windowing import WindowChanges, WindowTable, hold, window_changes, window_table
from penstock.state import CachedKeyValueStore
from penstock.topology.nodes import SourceNode

COLUMNS_FROM = 500
"""The fewest records of a shard's epoch that are worth being computed in columns."""

_log = logging.getLogger(__name__)

Tally = tuple[str, int, float]
"""A node, how many records it received, and the seconds they took."""


class Gathered(NamedTuple):
    """What records come to: changes of the table, how many records it dropped, and what each node did."""

    changes: Changes | WindowChanges | None
    dropped: int
    tallies: list[Tally]


def are_many(records: pa.Table) -> bool:
    """Whether a shard has enough records to be computed in columns."""
    return bool(records.num_rows >= COLUMNS_FROM)


def path_of(bound: BoundShard, records: pa.Table, catalogue: Sequence[str]) -> ColumnarPath | None:
    """Return the columnar path that all these records take; None if they must be walked."""
    if not are_many(records) or bound.clocks.follow_stream_time:
        return None
    paths = bound.circuit.blueprint.columnar_paths
    if not paths:
        return None
    codes = records.column("source").to_numpy()
    path = paths.get(catalogue[codes[0]])
    if path is None or (codes != codes[0]).any() or records.column("stream_time").null_count < records.num_rows:
        return None
    headers = records.column("headers")
    has_headers = headers.null_count < len(headers)
    return None if has_headers and (bound.is_traced or has_replays(headers)) else path


def gather(bound: BoundShard, records: pa.Table, catalogue: Sequence[str]) -> bool:
    """Run an epoch's records through one shard in columns; return False, without effect, if they must be walked.

    `catalogue` has the source nodes by the codes in the records.
    """
    path = path_of(bound, records, catalogue)
    table = None if path is None else _table(bound, path)
    if path is None or table is None:
        return False
    try:
        found = _gathered(path, bound.intakes[path.source].node, table, records)
    except Exception as error:  # rows will find out whether it is one
        _log.debug("walked, not computed in columns: %s: %s", type(error).__name__, error)
        return False
    if found.changes is not None:
        apply(bound, path, table, found.changes)
    bound.outbox.drop(path.steps[-1][0], path.gather.drops_for, found.dropped)
    if bound.samples is not None:
        for tally in found.tallies:
            bound.samples.add(*tally)
    bound.clocks.latest = int(records.column("timestamp").to_numpy().max())
    return True


def _table(bound: BoundShard, path: ColumnarPath) -> Table | WindowTable | None:
    """Return the table of a path, if columns can change it now."""
    name = path.gather.store
    if path.gather.within is not None:
        return window_table(bound, path.steps[-1][0], name)
    store = bound.stores.store(name)
    return Table(bound.circuit.blueprint.spec(name), store) if type(store) is CachedKeyValueStore and not store.held else None


def apply(bound: BoundShard, path: ColumnarPath, table: Table | WindowTable, changes: Changes | WindowChanges) -> None:
    """Put changes into the table, and have them sent when the epoch ends."""
    match changes, table:
        case Changes(), Table():
            settle(bound, path, table.store, changes)
        case WindowChanges(), WindowTable():
            hold(bound, table, changes)
            if path.gather.within is not None:
                bound.outbox.drop(path.steps[-1][0], path.gather.within.drops_for, changes.expired)


def _gathered(path: ColumnarPath, source: SourceNode, table: Table | WindowTable, records: pa.Table) -> Gathered:
    began, tallies = perf_counter(), list[Tally]()

    def tally(name: str, count: int) -> None:
        nonlocal began
        now = perf_counter()
        tallies.append((name, count, now - began))
        began = now

    frame, keys = _values(path, source, records.column("value")), keys_of(source.key, table.spec.serdes[0], records.column("key"))
    rows = np.arange(frame.size)
    tally(path.source, frame.size)
    for name, step in path.steps[:-1]:
        arrived = frame.size
        frame, rows = _after(step, frame, rows)
        tally(name, arrived)
    arrived = frame.size
    frame, rows = _complete(frame, rows, keys, needs_value=path.gather.within is None)
    reached = Arrived(keys, rows, records)
    changes = _changes(path, table, frame, reached) if frame.size else None
    tally(path.steps[-1][0], arrived)
    return Gathered(changes, arrived - frame.size, tallies)


def _changes(path: ColumnarPath, table: Table | WindowTable, frame: Frame, arrived: Arrived) -> Changes | WindowChanges:
    if isinstance(table, WindowTable):
        return window_changes(path.gather, table, frame, arrived)
    return changed(path, table, frame, arrived)


def _values(path: ColumnarPath, source: SourceNode, column: pa.ChunkedArray) -> Frame:
    return read_scalars(source.value, column) if are_scalars(source.value) else read(path.reads, column)


def _after(step: Step, frame: Frame, rows: Any) -> tuple[Frame, Any]:
    """Return the records that a step forwards."""
    if isinstance(step, Replace):
        return replaced(step.value, frame), rows
    if not isinstance(step, Keep):
        return frame, rows
    kept = holds(step.condition, frame)
    return _where(~kept if step.negate else kept, frame, rows)


def _complete(frame: Frame, rows: Any, keys: Keys, needs_value: bool) -> tuple[Frame, Any]:
    """Return the records that a table accepts: those with a key, and with a value if it needs one."""
    have_key = keys.numbers[rows] >= 0
    return _where(have_key & frame.have_value if needs_value else have_key, frame, rows)


def _where(mask: Any, frame: Frame, rows: Any) -> tuple[Frame, Any]:
    return (frame, rows) if mask.all() else (frame.where(mask), rows[mask])
