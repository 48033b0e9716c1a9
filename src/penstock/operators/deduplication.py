"""Drops records that have been seen before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any

import msgspec

from penstock.errors import FAILURES
from penstock.operators.drops import DUPLICATE
from penstock.processor import Host, Operator
from penstock.records import Headers, Process
from penstock.serdes import Bytes, Int64, Serde
from penstock.state import StoreKind, StoreSpec

_size = Struct(">i")
_NO_KEY = _size.pack(-1)
_identity_bytes = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Deduplicate(Operator):
    """Forwards the first record of each key and identity within a time, and drops the others.

    The store has the event time of that record, by key and identity. No key is not the same as an empty one; a record with
    neither key nor identity has nothing to be compared by, and is forwarded.
    """

    store: str
    within_ms: int
    key: Serde[Any]
    identity: Callable[[Any, Any], Any] | None

    def bind(self, host: Host, forward: Process) -> Process:
        seen, identity, within = host.store(self.store), self.identity, self.within_ms
        serialize, failed, dropped = self.key.serialize, host.failed, host.dropped

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                name = None if key is None else serialize(key)
                if identity is not None:
                    size = _NO_KEY if name is None else _size.pack(len(name))
                    name = size + (name or b"") + _identity_bytes(identity(key, value))
                if name is not None:
                    first = seen.get(name)
                    if first is not None and abs(timestamp - first) <= within:
                        dropped(DUPLICATE)
                        return
                    seen.put(name, timestamp, timestamp)
            except FAILURES as error:
                failed(error, key)
                return
            forward(key, value, timestamp, headers)

        return process


def seen_spec(name: str, within_ms: int) -> StoreSpec:
    """Return the store of what was seen."""
    return StoreSpec(name, StoreKind.KEY_VALUE, Bytes(), Int64(), ttl_ms=within_ms)
