"""Snapshots of all lanes as of one barrier: who reads them, and when they are let go of.

An old snapshot keeps the lanes' files from using their pages again. So one lives until the next, or for as long as somebody
reads it, but never for long.
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

T = TypeVar("T")

CHUNK = 100
"""So many rows of a scan are read at a time, before others get their turn."""

_ROWS_BEFORE_PAUSE = 256
_CLOSE_S = 5.0
_KEY_VALUE = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED)


class Snapshot:
    """The lanes, and the global stores, as of one barrier. Whoever reads holds `lock`: one at a time."""

    def __init__(self, epoch: int, lanes: Sequence[Engine], shards: int, globals_: Engine | None) -> None:
        self.epoch = epoch
        self._shards = shards
        self.lock = threading.Lock()
        self.is_closed = False
        self.retired_at: float | None = None
        """Since when there is a newer one."""
        self._lanes = lanes
        self._globals = globals_
        self._views: tuple[LaneState, ...] | None = None
        self._global_view: LaneState | None = None
        self._stores: dict[str, tuple[Any, ...]] = {}
        self._holds: list[None] = []  # one for each scan: a list, because a scan may be collected while the lock is held
        self._deadline = 0.0

    # ---- with the lock held -------------------------------------------------------------------------------------------

    def stores(self, spec: StoreSpec, is_global: bool) -> tuple[Any, ...]:
        """The store in each shard. Key-value stores are typed; of the others, keys and values are bytes."""
        found = self._stores.get(spec.name)
        if found is None:
            if spec.kind not in _KEY_VALUE:
                spec = replace(spec, key=Bytes(), value=Bytes())
            found = self._stores[spec.name] = tuple(shard.store(spec) for shard in self._views_of_shards(is_global))
        return found

    def count(self, store: str, is_global: bool) -> int:
        """About how many entries a store has."""
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
        """The lanes, each exactly as of the epoch; raises `StateError` if one has gone further than that can be told."""
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
        """Within a scan: give others a turn, and go on unless time is up."""
        deadline = self._deadline
        self.lock.release()
        time.sleep(0)  # lets go of the interpreter too: whoever waits for the lock comes first
        self.lock.acquire()
        self._deadline = deadline
        self.refuse_if_over(deadline)

    def refuse_if_over(self, deadline: float) -> None:
        """Raise if the snapshot is no more, or time is up."""
        if self.is_closed:
            raise QueryTimeoutError("the scan was too slow: what it reads from is let go of. Read on from where it has come to")
        if time.monotonic() > deadline:
            raise QueryTimeoutError("the scan took longer than it may. Ask for less, or read a table of the store")

    def chunk(self, rows: Iterator[T], deadline: float) -> list[T]:
        """The next rows of a scan."""
        self.refuse_if_over(deadline)
        self._deadline = deadline
        return list(islice(rows, CHUNK))

    # ---- without it -----------------------------------------------------------------------------------------------------

    def hold(self) -> bool:
        """Keep it from being let go of; False if it is no more."""
        with self.lock:
            if not self.is_closed:
                self._holds.append(None)
            return not self.is_closed

    def release(self) -> None:
        """The opposite of `hold`. Never waits."""
        self._holds.pop()
        self.close_if_unused()

    def retire(self, now: float) -> None:
        """There is a newer one: go as soon as nobody reads it. Does not wait for anybody."""
        self.retired_at = now
        self.close_if_unused()

    def close_if_unused(self, even_held: bool = False) -> None:
        """Let go of it, if it is replaced and nobody reads it; whoever has the lock now will try again when done."""
        if self.retired_at is not None and self.lock.acquire(blocking=False):
            try:
                if even_held or not self._holds:
                    self._close()
            finally:
                self.lock.release()

    def close(self) -> None:
        """Let go of it, whoever reads it; they are told at their next row."""
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
    """An engine whose scans pause now and then, also between rows that nobody gets to see."""

    def __init__(self, engine: Engine, pause: Callable[[], None]) -> None:
        self._engine = engine
        self._pause = pause
        self.get = engine.get
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
    """Rows of a snapshot, which it holds until the last one, until it is closed, or until time is up."""

    def __init__(self, snapshot: Snapshot, rows: Callable[[], Iterator[T]], deadline: float) -> None:
        self.epoch = snapshot.epoch
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
            with snapshot.lock:
                if self._left is None:
                    snapshot.refuse_if_over(self._deadline)
                    self._left = self._rows()
                self._chunk = iter(snapshot.chunk(self._left, self._deadline))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the snapshot."""
        snapshot, self._snapshot, self._left = self._snapshot, None, None
        if snapshot is not None:
            snapshot.release()

    def __del__(self) -> None:
        self.close()
