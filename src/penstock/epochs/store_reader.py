"""Reads a store over all lanes as Arrow batches, as of one commit, for tasks that are not part of an epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from penstock.epochs.columns import column_of
from penstock.epochs.committed_lanes import CommittedLanes
from penstock.epochs.program import Program
from penstock.epochs.shards import lane_of
from penstock.errors import SerializationError, StateError
from penstock.records import VersionedRecord, Windowed
from penstock.state import LaneState, StoreKind, StoreSpec
from penstock.state.remote.client import asking_to_retry

_ROWS = 5_000
_ATTEMPTS = 50
_PAUSE_S = 0.02
_LONGEST_S = 10.0
"""No further attempt begins after this time: a host that does not answer takes as long."""
_WINDOWED = (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION)
_TIMED = (StoreKind.TIMESTAMPED, StoreKind.TIMESTAMPED_WINDOW, StoreKind.VERSIONED)


def schema_of(spec: StoreSpec) -> pa.Schema:
    """Return the columns of a store's table. Times are milliseconds since 1970."""
    key, value = map(column_of, spec.serdes)
    fields = [pa.field("key", key.type)]
    if spec.kind in _WINDOWED:
        fields += [pa.field("window_start", pa.int64()), pa.field("window_end", pa.int64())]
    fields.append(pa.field("value", value.type))
    if spec.kind in _TIMED:
        fields.append(pa.field("timestamp", pa.int64()))
    return pa.schema(fields)


def read_store(program: Program, store: str, lanes: CommittedLanes) -> Iterator[pa.RecordBatch]:
    """Read a whole store as of the last commit, even if lanes are ahead; raises `NotReadyError` if a lane moves meanwhile."""
    spec = program.specs[store]
    with asking_to_retry(), ExitStack() as opened:
        if store in program.global_stores:
            shards = [lanes.open_globals(opened).shard(0)]
        else:
            states = _opened(lanes, opened)
            shards = [states[lane_of(shard, program.shards, program.lanes)].shard(shard) for shard in range(program.shards)]
        rows = chain.from_iterable(_rows(shard.store(spec), spec) for shard in shards)
        schema = schema_of(spec)
        converts = {"key": column_of(spec.serdes[0]).convert, "value": column_of(spec.serdes[1]).convert}
        while chunk := list(islice(rows, _ROWS)):
            yield _batch(chunk, store, schema, converts)


def _opened(lanes: CommittedLanes, opened: ExitStack) -> list[LaneState]:
    """Open all lanes as of one commit; retry if a lane no longer knows it, because later epochs were committed meanwhile."""
    end = time.monotonic() + _LONGEST_S
    for attempt in range(_ATTEMPTS):
        with ExitStack() as trying:
            try:
                states = lanes.open(trying)
            except StateError:
                if attempt == _ATTEMPTS - 1 or time.monotonic() > end:
                    raise
                time.sleep(_PAUSE_S)
                continue
            opened.push(trying.pop_all())
            return states
    raise AssertionError


def _rows(store: Any, spec: StoreSpec) -> Iterator[tuple[Any, ...]]:
    if spec.kind in _TIMED[:2]:
        store = store.entries
    if spec.kind in _WINDOWED:
        windows: Iterator[tuple[Windowed[Any], Any]] = store.all()
        if spec.kind is StoreKind.TIMESTAMPED_WINDOW:
            return ((key.key, key.start, key.end, entry.value, entry.timestamp) for key, entry in windows)
        return ((key.key, key.start, key.end, value) for key, value in windows)
    if spec.kind is StoreKind.KEY_VALUE:
        return iter(store.all())
    entries: Iterator[tuple[Any, VersionedRecord[Any]]] = store.all()
    return ((key, entry.value, entry.timestamp) for key, entry in entries)


def _batch(
    rows: list[tuple[Any, ...]], store: str, schema: pa.Schema, converts: Mapping[str, Callable[[Any], Any]]
) -> pa.RecordBatch:
    arrays = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        convert = converts.get(field.name)
        try:
            arrays.append(pa.array(values if convert is None else map(convert, values), field.type))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise SerializationError(f"Store {store!r}: a {field.name} is not of type {field.type}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
