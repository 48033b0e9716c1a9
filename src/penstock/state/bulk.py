"""Many entries of a table at once: read before an epoch's results are known, and written together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add
from typing import Any

from penstock.state.segments import KeyFirst
from penstock.state.timestamped import CachedKeyValueStore, pack_time
from penstock.state.windows import TimestampedWindowStore


def read_all(store: CachedKeyValueStore[Any, Any], names: list[bytes]) -> list[bytes | None]:
    """Return the timestamped values of ascending keys that are not held."""
    return store._space.get_many(names)


def write_all(
    store: CachedKeyValueStore[Any, Any], names: Sequence[bytes], times: Iterable[int], values: Iterable[bytes]
) -> None:
    """Set the values of keys that are not held, without forwarding them."""
    store._space.bulk().update(zip(names, map(add, map(pack_time, times), values), strict=True))


def can_hold_all(store: TimestampedWindowStore[Any, Any], earliest: int, latest: int) -> bool:
    """Whether all windows that start from `earliest` to `latest` can be held, in any order; none must be held already."""
    is_free = not store._held and isinstance(store._layout, KeyFirst)
    return is_free and earliest >= store._seen_from(max(store._retention.time, latest))


def read_windows(store: TimestampedWindowStore[Any, Any], keys: Sequence[bytes], starts: Sequence[int]) -> list[bytes | None]:
    """Return the timestamped values of windows, of which none is held."""
    around = {start: store.around_key(start) for start in set(starts)}
    names = [around[start][0] + key + around[start][1] for key, start in zip(keys, starts, strict=True)]
    order = sorted(range(len(names)), key=names.__getitem__)
    found: list[bytes | None] = [None] * len(names)
    for number, raw in zip(order, store._layout._space.get_many([names[number] for number in order]), strict=True):
        found[number] = raw
    return found


def hold_all(
    store: TimestampedWindowStore[Any, Any], entries: Iterable[tuple[tuple[Any, int], tuple[Any, int]]], latest: int
) -> None:
    """Hold values with their times, by key and start; `latest` is the last start."""
    if latest > store.observed_stream_time:
        store._retention.advance(latest)
    store._held.update(entries)
