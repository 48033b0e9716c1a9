"""The record key of a changelog row, which decides its shard, extracted from the row's own key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from penstock.errors import StateError
from penstock.serdes import SessionWindowed, TimeWindowed
from penstock.state.specs import RawLayout, StoreKind
from penstock.state.timers import timer_key

if TYPE_CHECKING:
    from penstock.serdes import Serde
    from penstock.state.specs import StoreSpec

_size = Struct(">I")
_TIME, _SESSION = 8, 16


def record_key(spec: StoreSpec, source_key: Serde[object]) -> Callable[[bytes], bytes]:
    """Return how to extract the record's key from the changelog rows of a store.

    `source_key` is the key serde of the records that enter the store's sub-topology: rows of a windowed table belong to the
    plain key that was aggregated, unless the records were routed by the windowed key itself.
    """
    tail = 0 if _window_size(source_key) else _window_size(spec.key)
    if spec.kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW):
        tail += 12
    elif spec.kind is StoreKind.SESSION:
        tail += _SESSION
    if spec.kind is StoreKind.VERSIONED:
        return partial(_versioned, tail=tail)
    if spec.kind is StoreKind.TIMERS:
        return partial(_of_timer, tail=tail) if tail else timer_key
    if spec.kind is not StoreKind.RAW:
        return partial(_cut, head=0, tail=tail) if tail else _whole
    if spec.layout is RawLayout.UNJOINED:
        return partial(_cut, head=9, tail=tail)
    if spec.layout is RawLayout.WAITING:
        return partial(_cut, head=8, tail=tail)
    if spec.layout is RawLayout.HELD:
        return partial(_held, tail=tail)
    if spec.layout is RawLayout.SUBSCRIPTIONS:
        return _foreign_key
    raise StateError(f"Raw store {spec.name!r} has no layout, so the key of its rows is unknown.")


def _window_size(serde: Serde[object] | None) -> int:
    if isinstance(serde, TimeWindowed):
        return _TIME
    return _SESSION if isinstance(serde, SessionWindowed) else 0


def _whole(row: bytes) -> bytes:
    return row


def _cut(row: bytes, head: int, tail: int) -> bytes:
    return row[head : len(row) - tail]


def _held(row: bytes, tail: int) -> bytes:
    return row[1 if row[:1] == b"k" else 9 : len(row) - tail]


def _versioned(row: bytes, tail: int) -> bytes:
    return row[1 if row[:1] == b"\x00" else 9 : len(row) - tail]


def _of_timer(row: bytes, tail: int) -> bytes:
    key = timer_key(row)
    return key[: len(key) - tail]


def _foreign_key(row: bytes) -> bytes:
    return row[4 : 4 + _size.unpack_from(row)[0]]
