"""The content of stores as comparable entries, from any shard, engine or changelog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.records import ValueAndTimestamp
from penstock.state import REGISTERS, LaneState, RawLayout, StoreKind, StoreSpec, last_registers, memory_engine
from penstock.state.bounds import MAX_TIME
from verification.integration.scenario import Entry

Rows = Mapping[tuple[str, int], tuple[Sequence[bytes], Sequence["bytes | None"]]]
"""Changelog rows by store and shard, including registers: keys and values, in the order in which they were written."""


def contents(lane: LaneState, specs: Iterable[StoreSpec], shards: Iterable[int]) -> dict[str, list[Entry]]:
    """The content of each store in some shards, as of the lane's last commit."""
    committed = lane.read_committed(lane.epoch)
    found: dict[str, list[Entry]] = {spec.name: [] for spec in specs}
    for shard in map(committed.shard, shards):
        for spec in specs:
            found[spec.name] += [_entry(*pair) for pair in _pairs(spec, shard.store(spec))]
    return found


def contents_of_all(states: Iterable[LaneState], specs: Sequence[StoreSpec]) -> dict[str, list[Entry]]:
    """The content of each store in states of one shard each."""
    found: dict[str, list[Entry]] = {spec.name: [] for spec in specs}
    for state in states:
        for name, entries in contents(state, specs, [0]).items():
            found[name] += entries
    return found


def restored(rows: Rows, specs: Iterable[StoreSpec]) -> LaneState:
    """A lane of all shards, restored from changelogs alone."""
    state = LaneState(memory_engine())
    for (store, number), (keys, values) in rows.items():
        shard = state.shard(number)
        for spec in specs:
            shard.store(spec)
        if store != REGISTERS:
            shard.stores[store].restore(list(keys), list(values))
    for (store, number), (keys, values) in rows.items():
        if store == REGISTERS:
            state.shard(number).restore_registers(last_registers(keys, values) or {})
    state.restore([], epoch=0)
    return state


def _pairs(spec: StoreSpec, store: Any) -> Iterator[tuple[Any, Any]]:
    if spec.kind is StoreKind.VERSIONED:
        for key, _ in store.all():
            yield from ((key, version) for version in store.history(key, 0, MAX_TIME))
    elif spec.kind is StoreKind.RAW:
        yield from ((key, _without_origin(spec, value)) for key, value in store.scan())
    elif spec.kind in (StoreKind.TIMESTAMPED, StoreKind.TIMESTAMPED_WINDOW):
        yield from store.entries.all()
    else:
        yield from store.all()


def _without_origin(spec: StoreSpec, value: bytes) -> Any:
    """A buffer's content without the topic it was read from: after an exchange the test driver has that, lanes the source."""
    if spec.layout is RawLayout.HELD and value:
        return msgspec.msgpack.decode(value)[:-1]
    if spec.layout is RawLayout.WAITING:
        return [waiting[:-1] for waiting in msgspec.msgpack.decode(value)]
    return value


def _entry(key: Any, value: Any) -> Entry:
    if isinstance(value, ValueAndTimestamp):
        return Entry(repr(key), repr(value.value), value.timestamp)
    return Entry(repr(key), repr(value))
