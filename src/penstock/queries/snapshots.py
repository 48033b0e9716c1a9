"""Snapshots of all lanes as of one commit: who reads them, and when they are closed.

While an old snapshot is open, the lanes' files cannot reuse its pages. So a snapshot is closed when it is replaced and has no
readers, and in any case after a time limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Generic, TypeVar

from penstock.epochs.shards import lane_of
from penstock.errors import QueryTimeoutError
from penstock.serdes import Bytes
from penstock.state import Engine, LaneState, ShardState, StoreKind, StoreSpec
from penstock.state.remote.client import asking_to_retry

T = TypeVar("T")

CHUNK = 100
"""How many rows a scan reads before it lets other readers in."""

_ROWS_BEFORE_PAUSE = 256
_CLOSE_S = 5.0
_KEY_VALUE = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED)


class Snapshot:
    """The lanes and the global stores as of one commit. Readers hold `lock`, one at a time."""

    def __init__(self, epoch: int, lanes: Sequence[Engine], shards: int, globals_: Engine | None) -> None:
        self.epoch = epoch
        self._shards = shards
        self.lock: threading.Lock = threading.Lock()
        self.is_closed: bool = False
        self.retired_at: float | None = None
        """When a newer snapshot replaced this one."""
        self._lanes = lanes
        self._globals = globals_
        self._views: tuple[LaneState, ...] | None = None
        self._global_view: LaneState | None = None
        self._stores: dict[str, tuple[Any, ...]] = {}
        self._holds: list[None] = []  # one per holder; a list, because a scan may be garbage-collected while the lock is held
        self._deadline = 0.0

    # ---- with the lock held -------------------------------------------------------------------------------------------

    def stores(self, spec: StoreSpec, is_global: bool) -> tuple[Any, ...]:
        """Return the store in each shard. Key-value stores are typed; in the others, keys and values are bytes."""
        found = self._stores.get(spec.name)
        if found is None:
            if spec.kind not in _KEY_VALUE:
                spec = replace(spec, key=Bytes(), value=Bytes())
            found = self._stores[spec.name] = tuple(shard.store(spec) for shard in self._views_of_shards(is_global))
        return found

    def count(self, store: str, is_global: bool) -> int:
        """Return the approximate number of entries of a store."""
        views = filter(None, [self._view_of_globals()]) if is_global else self.views()
        return sum(view.count(store) for view in views)

    def _views_of_shards(self, is_global: bool) -> Iterator[ShardState]:
        if is_global:
            view = self._view_of_globals()
            if view is not None:
                yield view.shard(0)
        elif views := self.views():
            for shard in range(self._shards):
                yield views[lane_of(shard, self._shards, len(views))].shard(shard)

    def views(self) -> tuple[LaneState, ...]:
        """Return the lanes, each exactly as of the epoch; raise `StateError` if one is too far ahead."""
        if self._views is None:
            self._views = tuple(self._view(engine, self.epoch) for engine in self._lanes)
        return self._views

    def _view_of_globals(self) -> LaneState | None:
        if self._global_view is None and self._globals is not None:
            self._global_view = self._view(self._globals, LaneState(self._globals).epoch)
        return self._global_view

    def _view(self, engine: Engine, epoch: int) -> LaneState:
        return LaneState(_Interruptible(engine, self._pause)).read_committed(epoch)

    def _pause(self) -> None:
        """Within a scan: let other readers in, then continue unless the deadline has passed."""
        deadline = self._deadline
        self.lock.release()
        time.sleep(0)  # releases the GIL too, so that a thread that waits for the lock gets it first
        self.lock.acquire()
        self._deadline = deadline
        self.refuse_if_over(deadline)

    def refuse_if_over(self, deadline: float) -> None:
        """Raise `QueryTimeoutError` if the snapshot is closed or the deadline has passed."""
        if self.is_closed:
            raise QueryTimeoutError("The scan was too slow: its snapshot is closed. Start a new scan after the last row read.")
        if time.monotonic() > deadline:
            raise QueryTimeoutError("The scan exceeded its time limit. Request fewer rows, or use running.table(store).")

    def chunk(self, rows: Iterator[T], deadline: float) -> list[T]:
        """Return the next rows of a scan."""
        self.refuse_if_over(deadline)
        self._deadline = deadline
        return list(islice(rows, CHUNK))

    # ---- without the lock ---------------------------------------------------------------------------------------------

    def hold(self) -> bool:
        """Keep the snapshot open; return False if it is already closed."""
        with self.lock:
            if not self.is_closed:
                self._holds.append(None)
            return not self.is_closed

    def release(self) -> None:
        """Undo one `hold`. Never blocks."""
        self._holds.pop()
        self.close_if_unused()

    def retire(self, now: float) -> None:
        """Mark the snapshot as replaced: it is closed once it has no readers. Never blocks."""
        self.retired_at = now
        self.close_if_unused()

    def close_if_unused(self, even_held: bool = False) -> None:
        """Close the snapshot if it is replaced and has no readers; a reader that holds the lock now retries when it is done."""
        if self.retired_at is not None and self.lock.acquire(blocking=False):
            try:
                if even_held or not self._holds:
                    self._close()
            finally:
                self.lock.release()

    def close(self) -> None:
        """Close the snapshot even if it has readers; their next read raises `QueryTimeoutError`."""
        if self.lock.acquire(timeout=_CLOSE_S):
            try:
                self._close()
            finally:
                self.lock.release()

    def _close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            for engine in self._lanes:
                engine.close()
            if self._globals is not None:
                self._globals.close()
            self._views = self._global_view = None
            self._stores.clear()


class _Interruptible:
    """An engine whose scans pause regularly, also between rows that no reader gets."""

    def __init__(self, engine: Engine, pause: Callable[[], None]) -> None:
        self._engine = engine
        self._pause = pause
        self.get = engine.get
        self.get_many = engine.get_many
        self.count = engine.count
        self.size = engine.size
        self.write = engine.write
        self.snapshot = engine.snapshot
        self.refresh = engine.refresh
        self.close = engine.close

    def scan(self, space: str, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """See `Engine.scan`."""
        rows = self._engine.scan(space, lower, upper, reverse)
        while chunk := list(islice(rows, _ROWS_BEFORE_PAUSE)):
            yield from chunk
            if len(chunk) < _ROWS_BEFORE_PAUSE:
                return
            self._pause()


class Scan(Iterator[T], Generic[T]):
    """An iterator over rows of a snapshot; it holds the snapshot until the last row, `close`, or its deadline."""

    def __init__(self, snapshot: Snapshot, rows: Callable[[], Iterator[T]], deadline: float) -> None:
        self.epoch: int = snapshot.epoch
        self._snapshot: Snapshot | None = snapshot
        self._rows = rows
        self._left: Iterator[T] | None = None
        self._deadline = deadline
        self._chunk: Iterator[T] = iter(())

    def __next__(self) -> T:
        for row in self._chunk:
            return row
        self._read()
        for row in self._chunk:
            return row
        self.close()
        raise StopIteration

    def _read(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        try:
            with asking_to_retry(), snapshot.lock:
                if self._left is None:
                    snapshot.refuse_if_over(self._deadline)
                    self._left = self._rows()
                self._chunk = iter(snapshot.chunk(self._left, self._deadline))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the snapshot."""
        snapshot, self._snapshot, self._left = self._snapshot, None, None
        if snapshot is not None:
            snapshot.release()

    def __del__(self) -> None:
        self.close()
