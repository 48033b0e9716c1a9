"""Rewrites the values of a store, some at a time, in the order of their keys."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from penstock.errors import StateError
from penstock.state.segments import TimeFirst
from penstock.state.specs import StoreKind

if TYPE_CHECKING:
    from penstock.state.shard import ShardState
    from penstock.state.specs import StoreSpec

_TIME = 8
"""The size of the event time before a value."""

_WINDOWED = (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION)


def rewrite(
    shard: ShardState, spec: StoreSpec, skip: int, most: int, convert: Callable[[bytes], bytes | None]
) -> tuple[int, int, bool]:
    """Convert the values of up to `most` entries of a shard, after the first `skip`.

    Returns how many were read, how many of those are left, and whether there are no more.
    """
    shard.store(spec)
    space = shard.space(spec.name)
    size = _TIME if spec.ttl_ms is not None or spec.kind in (StoreKind.TIMESTAMPED, StoreKind.TIMESTAMPED_WINDOW) else 0
    bounds = TimeFirst.MAIN if spec.time_ordered else (None, None)
    entries = list(islice(space.scan(*bounds), skip, skip + most))
    left = 0
    for key, raw in entries:
        new = convert(raw[size:])
        if new is None and (spec.kind in _WINDOWED or spec.ttl_ms is not None):
            raise StateError(f"Store {spec.name!r}: migrate= returned None, but only entries of plain stores can be deleted.")
        space.put(key, None if new is None else raw[:size] + new)
        left += new is not None
    return len(entries), left, len(entries) < most
