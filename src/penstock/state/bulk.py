"""Many entries of a cached table at once: the old values of an epoch's keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.records import ValueAndTimestamp
from penstock.state.timestamped import CachedKeyValueStore


def load_all(store: CachedKeyValueStore[Any, Any], keys: Sequence[Any]) -> list[ValueAndTimestamp[Any] | None]:
    """Return the values of keys that are not held; the engine reads them in its own order, which is faster."""
    space, decode = store._space, store._decode_entry
    names = list(map(store._key_bytes, keys))
    space.read_ahead(sorted(names))
    return [None if raw is None else decode(raw) for raw in map(space.get, names)]
