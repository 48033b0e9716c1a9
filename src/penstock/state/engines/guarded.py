"""An engine that several threads read: one lock around each read. A transaction of LMDB may be used by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.state.engines.engine import Engine, Expected, SpaceBatch


class GuardedEngine:
    """Passes everything to an engine, one call at a time. It is read by many threads and written by one, while no other reads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = threading.Lock()

    def get(self, space: str, key: bytes) -> bytes | None:
        """See `Engine.get`."""
        with self._turn:
            return self._engine.get(space, key)

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Engine.get_many`."""
        with self._turn:
            return self._engine.get_many(space, keys)

    def scan(self, space: str, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """See `Engine.scan`: other threads have their turn between two entries."""
        with self._turn:
            entries = self._engine.scan(space, lower, upper, reverse)
        while True:
            with self._turn:
                entry = next(entries, None)
            if entry is None:
                return
            yield entry

    def count(self, space: str) -> int:
        """See `Engine.count`."""
        with self._turn:
            return self._engine.count(space)

    def size(self, space: str) -> int:
        """See `Engine.size`."""
        with self._turn:
            return self._engine.size(space)

    def write(self, batch: Sequence[SpaceBatch], expected: Expected | None = None) -> None:
        """See `Engine.write`."""
        with self._turn:
            self._engine.write(batch, expected)

    def snapshot(self) -> Engine:
        """See `Engine.snapshot`."""
        with self._turn:
            return self._engine.snapshot()

    def refresh(self) -> None:
        """See `Engine.refresh`."""
        with self._turn:
            self._engine.refresh()

    def close(self) -> None:
        """See `Engine.close`."""
        with self._turn:
            self._engine.close()
