"""Many entries of a cached table at once: read before an epoch's results are known, and written together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add
from typing import Any

from penstock.state.timestamped import CachedKeyValueStore, pack_time


def read_all(store: CachedKeyValueStore[Any, Any], names: list[bytes]) -> list[bytes | None]:
    """Return the timestamped values of ascending keys that are not held."""
    return store._space.get_many(names)


def write_all(
    store: CachedKeyValueStore[Any, Any], names: Sequence[bytes], times: Iterable[int], values: Iterable[bytes]
) -> None:
    """Set the values of keys that are not held, without forwarding them."""
    store._space.bulk().update(zip(names, map(add, map(pack_time, times), values), strict=True))
