"""The changes of a table in an epoch that is computed in columns: from the records that reach it to what is stored and sent.

If only a sink follows that writes what the store writes, the bytes of the store are sent. Otherwise the changes are held in the
table's cache, and what follows is done as if records had been walked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.columns.aggregation import Groups, fold, initials
from penstock.expressions.columns.documents import reader
from penstock.expressions.columns.frames import Frame
from penstock.expressions.columns.scalars import is_text
from penstock.expressions.columns.texts import documents
from penstock.expressions.columns.vectors import DoubtError
from penstock.expressions.nodes import Aggregates
from penstock.lanes.bound_shard import BoundShard
from penstock.lanes.columnar import ColumnarPath
from penstock.lanes.outbox import Row, RowKind
from penstock.lanes.position import headers_of
from penstock.lanes.sinks import by_key
from penstock.records import NO_HEADERS, NO_TIMESTAMP, Headers
from penstock.serdes import Int64, Json, Serde, String
from penstock.state import CachedKeyValueStore, StoreSpec, read_all, timestamp_of, value_decoder, write_all

_SPARSE = 10
"""From so many possible numbers for each number, sorting takes less time than a place for each possible one."""

_new = tuple.__new__  # cheaper than Row(...)


class Table(NamedTuple):
    """The store of a table, and its declaration."""

    spec: StoreSpec
    store: CachedKeyValueStore[Any, Any]


class Keys(NamedTuple):
    """The different keys of some records, as the store writes them, ascending, and, unless they are text, as objects.

    `numbers` is the number of each record's key among them, -1 for a record without a key.
    """

    names: list[bytes]
    objects: list[Any] | None
    numbers: Any

    def as_objects(self) -> list[Any]:
        """Return the keys as objects."""
        return [name.decode() for name in self.names] if self.objects is None else self.objects

    def of(self, used: Sequence[int]) -> Keys:
        """Return only some of the keys."""
        objects = None if self.objects is None else [self.objects[number] for number in used]
        return self._replace(names=[self.names[number] for number in used], objects=objects)


class Arrived(NamedTuple):
    """The records that have reached the table, each with a key: all keys of the epoch, and the rows of these records."""

    keys: Keys
    rows: Any
    records: pa.Table


class Changes(NamedTuple):
    """New entries of a table by key, and the order of their last puts.

    `values` are bytes if they are `sent_as_stored`, otherwise objects.
    """

    keys: Keys
    values: list[Any]
    sent_as_stored: bool
    times: Any
    headers: list[Headers]
    last_times: list[int]
    order: list[int]


def keys_of(read: Serde[Any], written: Serde[Any], column: pa.ChunkedArray) -> Keys:
    """Return the keys of records; all of them are read, as an unreadable one is an error even if its record goes nowhere."""
    encoded = column.combine_chunks().dictionary_encode()
    numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if read == written == String() and is_text(encoded.dictionary):
        order = pc.array_sort_indices(encoded.dictionary)
        return Keys(encoded.dictionary.take(order).to_pylist(), None, _renumbered(numbers, order.to_numpy()))
    objects = list(map(read.deserialize, encoded.dictionary.to_pylist()))
    names = list(map(written.serialize, objects))
    if len(set(objects)) < len(names) or len(set(names)) < len(names):
        raise DoubtError("different bytes of the same key")
    by_name = sorted(range(len(names)), key=names.__getitem__)
    return Keys([names[key] for key in by_name], [objects[key] for key in by_name], _renumbered(numbers, np.array(by_name, int)))


def _renumbered(numbers: Any, order: Any) -> Any:
    """Return the numbers of keys in another order; the last place is for records without a key."""
    places = np.full(len(order) + 1, -1, np.int64)
    places[order] = np.arange(len(order))
    return places[numbers]


def changed(path: ColumnarPath, table: Table, frame: Frame, arrived: Arrived) -> Changes:
    """Return the changes of a table by the records that have reached it."""
    node, rows, records = path.gather.aggregates, arrived.rows, arrived.records
    groups, used = _groups(arrived.keys.numbers[rows], len(arrived.keys.names))
    keys = arrived.keys if used is None else arrived.keys.of(used)
    raw = read_all(table.store, keys.names)
    results = fold(node, frame, groups, before(node, table.spec, raw))
    timestamps = records.column("timestamp").to_numpy()[rows]
    times, last = latest(raw, groups, timestamps)
    as_stored = _is_sent_as_stored(path, table.spec)
    values = _as_stored(node, table.spec, results) if as_stored else objects(node, results)
    headers = headers_at(records.column("headers"), rows[last])
    return Changes(keys, values, as_stored, times, headers, timestamps[last].tolist(), np.argsort(last).tolist())


def _groups(numbers: Any, count: int) -> tuple[Groups, list[int] | None]:
    """Return the groups of records, numbered without gaps, and the keys they stand for; None if that is every key."""
    used, places = distinct(numbers, count)
    return (Groups(numbers, count), None) if len(used) == count else (Groups(places, len(used)), used.tolist())


def distinct(numbers: Any, count: int) -> tuple[Any, Any]:
    """Return the different numbers below `count`, ascending, and the place of each number among them."""
    if count > _SPARSE * len(numbers):
        return np.unique(numbers, return_inverse=True)
    is_used = np.zeros(count, bool)
    is_used[numbers] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[numbers]


def latest(raw: Sequence[bytes | None], groups: Groups, timestamps: Any) -> tuple[Any, Any]:
    """Return the highest time of each group, with that of what was there before, and the position of its last record."""
    times = np.array([NO_TIMESTAMP if each is None else timestamp_of(each) for each in raw], np.int64)
    np.maximum.at(times, groups.numbers, timestamps)
    last = np.zeros(groups.size, np.int64)
    np.maximum.at(last, groups.numbers, np.arange(len(timestamps)))
    return times, last


def before(node: Aggregates | None, spec: StoreSpec, raw: Sequence[bytes | None]) -> list[list[Any]]:
    """Return the aggregates of earlier epochs, by field; only the counts without a node."""
    if node is None:
        count_in = value_decoder(spec.serdes[1].deserialize)
        return [[0 if each is None else count_in(each) for each in raw]]
    names = [name for name, _ in node.fields]
    decode: Callable[[bytes], Any] = spec.serdes[1].deserialize
    fields: list[Callable[[Any], Any]] = [attrgetter(name) for name in names]
    if node.into is None:
        if spec.serdes[1] != Json():
            raise DoubtError("a store that is not JSON")
        decode, by_path = reader(frozenset((name,) for name in names))
        fields = [by_path[name,] for name in names]
    state_in = value_decoder(decode)
    states = [None if each is None else state_in(each) for each in raw]
    if node.into is not None and not set(map(type, states)) <= {node.into, type(None)}:
        raise DoubtError("an entry of another class")
    pairs = zip(fields, initials(node), strict=True)
    return [[initial if state is None else field(state) for state in states] for field, initial in pairs]


def _is_sent_as_stored(path: ColumnarPath, spec: StoreSpec) -> bool:
    if path.end is None:
        return False
    node, sink = path.gather.aggregates, path.end.sink
    is_one_form = isinstance(spec.serdes[1], Int64) if node is None else node.into is None and spec.serdes[1] == Json()
    return is_one_form and spec.serdes[1] == sink.value and spec.serdes[0] == sink.key


def _as_stored(node: Aggregates | None, spec: StoreSpec, results: list[list[Any]]) -> list[bytes]:
    """Return results by field as the bytes that a store keeps."""
    if node is None:
        return list(map(spec.serdes[1].serialize, results[0]))
    return documents([name for name, _ in node.fields], results)


def headers_at(column: pa.ChunkedArray, rows: Any) -> list[Headers]:
    """Return the headers of some rows."""
    if column.null_count == len(column):
        return [NO_HEADERS] * len(rows)
    return [headers_of(row) for row in column.take(pa.array(rows)).to_pylist()]


def settle(bound: BoundShard, path: ColumnarPath, store: CachedKeyValueStore[Any, Any], changes: Changes) -> None:
    """Put changes into the store, and have them sent when the epoch ends."""
    if not changes.sent_as_stored:
        _hold(store, changes)
        return
    write_all(store, changes.keys.names, changes.times.tolist(), changes.values)
    bound.stores.emit_once(store.name, lambda: _send(bound, path, changes))


def _hold(store: CachedKeyValueStore[Any, Any], changes: Changes) -> None:
    keys = changes.keys.as_objects()
    entries = list(zip(changes.values, changes.times.tolist(), keys, changes.headers, changes.last_times, strict=True))
    store.held.update((keys[number], entries[number]) for number in changes.order)


def objects(node: Aggregates | None, results: list[list[Any]]) -> list[Any]:
    """Return results by field as the objects that a store keeps."""
    if node is None:
        return results[0]
    names, into = [name for name, _ in node.fields], node.into
    if into is None:
        return [dict(zip(names, values, strict=True)) for values in zip(*results, strict=True)]
    return [into(**dict(zip(names, values, strict=True))) for values in zip(*results, strict=True)]


def _send(bound: BoundShard, path: ColumnarPath, changes: Changes) -> None:
    """Send the changes in the order of their last puts, as the flush of a cache does."""
    end, values, order = path.end, changes.values, changes.order
    assert end is not None
    names, times, headers = changes.keys.names, changes.times.tolist(), changes.headers
    kind, cause = RowKind.EXCHANGE if end.sink.internal else RowKind.SINK, bound.cursor.row
    columns = (
        repeat(end.topic),
        map(names.__getitem__, order),
        map(values.__getitem__, order),
        map(times.__getitem__, order),
        map(headers.__getitem__, order),
        repeat(by_key(end.sink)),
        repeat(kind),
        repeat(cause),
    )
    bound.outbox.send_all(map(_new, repeat(Row), zip(*columns, strict=False)))
    if bound.samples is not None:
        for name in (end.between, end.sink.name):
            bound.samples.add(name, len(order), 0.0)
