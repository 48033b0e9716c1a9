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

from penstock.columns.aggregation import Groups, fold
from penstock.columns.documents import read
from penstock.columns.evaluation import holds, replaced
from penstock.columns.frames import Frame
from penstock.columns.steps import Keep, Replace, Step
from penstock.columns.vectors import DoubtError
from penstock.expressions.nodes import Aggregates
from penstock.lanes.columnar import ColumnarPath
from penstock.lanes.entrances import has_replays
from penstock.lanes.lane import Lane
from penstock.lanes.position import headers_of
from penstock.lanes.sources import Intake
from penstock.records import NO_HEADERS, NO_TIMESTAMP, Headers
from penstock.state import CachedKeyValueStore, Held, load_all

COLUMNS_FROM = 500
"""The fewest records of a shard's epoch that are worth being computed in columns."""

_log = logging.getLogger(__name__)


class Gathered(NamedTuple):
    """What records come to: entries of a store in the order of their last puts, drops, and records and seconds by node."""

    held: dict[Any, Held]
    dropped: int
    tallies: list[tuple[str, int, float]]


def are_many(records: pa.Table) -> bool:
    """Whether a shard has enough records to be computed in columns."""
    return bool(records.num_rows >= COLUMNS_FROM)


def path_of(lane: Lane, records: pa.Table, catalogue: Sequence[str]) -> ColumnarPath | None:
    """Return the columnar path that all these records take; None if they must be walked."""
    paths = lane.circuit.blueprint.columnar_paths
    if not paths or not are_many(records) or lane.clocks.follow_stream_time:
        return None
    codes = records.column("source").to_numpy()
    path = paths.get(catalogue[codes[0]])
    if path is None or (codes != codes[0]).any() or records.column("stream_time").null_count < records.num_rows:
        return None
    headers = records.column("headers")
    has_headers = headers.null_count < len(headers)
    return None if has_headers and (lane.is_traced or has_replays(headers)) else path


def gather(lane: Lane, records: pa.Table, catalogue: Sequence[str]) -> bool:
    """Run an epoch's records through one shard in columns; return False, without effect, if they must be walked.

    `catalogue` has the source nodes by the codes in the records.
    """
    path = path_of(lane, records, catalogue)
    store = None if path is None else lane.stores.store(path.gather.store)
    if path is None or type(store) is not CachedKeyValueStore or store.held:
        return False
    try:
        found = _gathered(path, lane.intakes[path.source], store, records)
    except Exception as error:  # rows will find out whether it is one
        _log.debug("walked, not computed in columns: %s: %s", type(error).__name__, error)
        return False
    store.held.update(found.held)
    lane.outbox.drop(path.steps[-1][0], path.gather.drops_for, found.dropped)
    if lane.samples is not None:
        for name, count, seconds in found.tallies:
            lane.samples.add(name, count, seconds)
    lane.clocks.latest = int(records.column("timestamp").to_numpy().max())
    return True


def _gathered(path: ColumnarPath, intake: Intake, store: CachedKeyValueStore[Any, Any], records: pa.Table) -> Gathered:
    began = perf_counter()
    tallies: list[tuple[str, int, float]] = []

    def tally(name: str, count: int) -> None:
        nonlocal began
        now = perf_counter()
        tallies.append((name, count, now - began))
        began = now

    frame, keys = read(path.reads, records.column("value")), _keys(intake, records.column("key"))
    rows = np.arange(frame.size)
    tally(path.source, frame.size)
    for name, step in path.steps[:-1]:
        arrived = frame.size
        frame, rows = _after(step, frame, rows)
        tally(name, arrived)
    arrived = frame.size
    frame, rows = _complete(frame, rows, keys)
    held = _held(path.gather.aggregates, frame, rows, keys, store, records) if frame.size else {}
    tally(path.steps[-1][0], arrived)
    return Gathered(held, arrived - frame.size, tallies)


class Keys(NamedTuple):
    """The different keys of some records, and the number of each record's key among them; -1 for a record without a key."""

    different: list[Any]
    numbers: Any


def _keys(intake: Intake, column: pa.ChunkedArray) -> Keys:
    encoded = column.combine_chunks().dictionary_encode()
    different = list(map(intake.key, encoded.dictionary.to_pylist()))
    if len(set(different)) < len(different):
        raise DoubtError("different bytes of the same key")
    return Keys(different, encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False))


def _after(step: Step, frame: Frame, rows: Any) -> tuple[Frame, Any]:
    """Return the records that a step forwards."""
    if isinstance(step, Replace):
        return replaced(step.value, frame), rows
    if not isinstance(step, Keep):
        return frame, rows
    kept = holds(step.condition, frame)
    return _where(~kept if step.negate else kept, frame, rows)


def _complete(frame: Frame, rows: Any, keys: Keys) -> tuple[Frame, Any]:
    """Return the records with a key and a value."""
    is_complete = keys.numbers[rows] >= 0
    return _where(is_complete if frame.value is None else is_complete & frame.value.are_known, frame, rows)


def _where(mask: Any, frame: Frame, rows: Any) -> tuple[Frame, Any]:
    return (frame, rows) if mask.all() else (frame.where(mask), rows[mask])


def _held(
    node: Aggregates, frame: Frame, rows: Any, keys: Keys, store: CachedKeyValueStore[Any, Any], records: pa.Table
) -> dict[Any, Held]:
    """Return the new entries of the store's cache."""
    used, numbers = np.unique(keys.numbers[rows], return_inverse=True)
    own = [keys.different[number] for number in used.tolist()]
    before = load_all(store, own)
    if any(entry is not None and entry[0] is None for entry in before):
        raise DoubtError("an entry without a value")
    results = fold(node, frame, Groups(numbers, len(own)), [None if entry is None else entry[0] for entry in before])
    timestamps = records.column("timestamp").to_numpy()[rows]
    times = np.array([NO_TIMESTAMP if entry is None else entry[1] for entry in before], np.int64)
    np.maximum.at(times, numbers, timestamps)
    last = np.zeros(len(own), np.int64)
    np.maximum.at(last, numbers, np.arange(len(rows)))
    order = np.argsort(last)
    entries = list(
        zip(
            _objects(node, results),
            times.tolist(),
            own,
            _headers(records.column("headers"), rows[last]),
            timestamps[last].tolist(),
            strict=True,
        )
    )
    return {own[number]: entries[number] for number in order.tolist()}


def _objects(node: Aggregates, results: list[list[Any]]) -> list[Any]:
    """Return results by field as the objects that a store keeps."""
    names, into = [name for name, _ in node.fields], node.into
    if into is None:
        return [dict(zip(names, values, strict=True)) for values in zip(*results, strict=True)]
    return [into(**dict(zip(names, values, strict=True))) for values in zip(*results, strict=True)]


def _headers(column: pa.ChunkedArray, rows: Any) -> list[Headers]:
    if column.null_count == len(column):
        return [NO_HEADERS] * len(rows)
    return [headers_of(row) for row in column.take(pa.array(rows)).to_pylist()]
