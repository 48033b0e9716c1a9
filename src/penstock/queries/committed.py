"""`CommittedState`: the stores of a running application as of its last commit, readable from any thread.

Without queries, nothing is open and a commit costs nothing. After the first query, each commit takes a new snapshot of every
lane, which takes microseconds. Lanes may be epochs ahead by then, and be written at that moment; they keep the values that epochs
in flight have replaced, and queries read those.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from penstock.epochs.program import Program
from penstock.epochs.state_directory import StateDirectory
from penstock.errors import LaneMovedError, NotReadyError, QueryTimeoutError, StateError, UnknownStoreError
from penstock.queries.snapshots import Scan, Snapshot
from penstock.state import Engine, EngineFactory, Snapshots, StoreKind, StoreSpec, by_query, memory_engine
from penstock.state.remote.client import Address, LaneClients, RemoteSnapshots, asking_to_retry
from penstock.topology import SourceNode

_log = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_S = 30.0
"""Without a query for this long, the snapshots are closed."""

SCAN_S = 60.0
"""A scan may run for this long; its snapshot is kept until then."""

_KEPT = 50
"""The most old snapshots to keep: each takes one of the 126 reader slots of every lane."""

_ATTEMPTS = 20
_INTERNAL = (StoreKind.RAW, StoreKind.TIMERS)


class CommittedState:
    """All lanes as of the last commit.

    `committed` returns the epoch of the last commit, `globals_` takes a snapshot of the global stores. If lanes run on several
    hosts, `server_of` returns the address of a lane's server.
    """

    def __init__(
        self,
        program: Program,
        committed: Callable[[], int],
        globals_: Callable[[], Engine] | None = None,
        clock: Callable[[], float] = time.monotonic,
        server_of: Callable[[int], Address] | None = None,
    ) -> None:
        self.program = program
        shown = {name: spec for name, spec in program.specs.items() if spec.kind not in _INTERNAL}
        self.specs: dict[str, StoreSpec] = {known: shown[name] for known, name in by_query(shown).items()}
        self._committed = committed
        self._take_globals = globals_ if program.global_stores else None
        self._clock = clock
        self._all_lanes = _lanes_of(program, server_of)
        has_lanes = shown.keys() > program.global_stores.keys() or not program.global_stores
        self._lanes = self._all_lanes if has_lanes else []
        self._are_cheap = all(lane.are_cheap for lane in self._lanes)
        self._changing = threading.Lock()
        self._current: Snapshot | None = None
        self._old: list[Snapshot] = []
        self._asked_at = 0.0
        self._is_closed = False
        self._committing = threading.Condition()
        self._waiting = 0

    def spec(self, store: str) -> StoreSpec:
        """Return the specification of a store that can be queried."""
        found = self.specs.get(store)
        if found is None:
            known = f"Unknown store {store!r}. Known stores: {', '.join(sorted(self.specs)) or 'none'}."
            is_read = any(isinstance(node, SourceNode) and store in node.topics for node in self.program.nodes.values())
            cure = f" To query what topic {store!r} has, read it with table({store!r}, store={store!r})." if is_read else ""
            raise UnknownStoreError(known + cure)
        return found

    @property
    def epoch(self) -> int:
        """The epoch of the last commit."""
        return self._committed()

    @property
    def is_at_hand(self) -> bool:
        """Whether a query would be answered at once, without waiting for a snapshot."""
        current = self._current
        return current is not None and current.epoch == self._committed()

    # ---- for readers --------------------------------------------------------------------------------------------------

    def read(self, read: Callable[[Snapshot], T]) -> tuple[T, int]:
        """Call `read` with the newest snapshot; return its result and the epoch. `read` must be short: other readers wait."""
        while True:
            snapshot = self.current()
            with self._kept(snapshot), snapshot.lock:
                if snapshot.is_closed:  # just replaced
                    continue
                found = read(snapshot)
            if snapshot.retired_at is not None:
                snapshot.close_if_unused()
            return found, snapshot.epoch

    @contextmanager
    def _kept(self, snapshot: Snapshot) -> Iterator[None]:
        """Keep the snapshot for later reads, unless it cannot be read any more."""
        with asking_to_retry():
            try:
                yield
            except LaneMovedError:
                with self._changing:
                    if self._current is snapshot:
                        self._replace(None)
                raise

    def held(self) -> Snapshot:
        """Return the newest snapshot, which stays open until it is released."""
        while True:
            snapshot = self.current()
            if snapshot.hold():
                return snapshot

    def current(self) -> Snapshot:
        """Return the newest snapshot; take it now if the last commit did not."""
        self._asked_at = self._clock()
        snapshot = self._current
        if snapshot is not None and snapshot.epoch == self._committed():
            return snapshot
        with self._changing, asking_to_retry():
            return self._renewed()

    def wait_for(self, epoch: int, timeout_s: float) -> None:
        """Wait until an epoch is committed; raise `NotReadyError` after `timeout_s`."""
        if self._committed() >= epoch:
            return
        with self._committing:
            self._waiting += 1
            came = self._committing.wait_for(lambda: self._is_closed or self._committed() >= epoch, timeout_s)
            self._waiting -= 1
        self._refuse_if_closed()
        if not came:
            last = self._committed()
            raise NotReadyError(f"Epoch {epoch} is not committed yet; the last is {last}. Retry, or wait longer.")

    def lane(self, number: int) -> Engine:
        """Take a snapshot of one lane with what it has now, which may not be committed; the caller closes it."""
        with self._changing:
            self._refuse_if_closed()
            return self._all_lanes[number].take()

    def globals(self) -> Engine:
        """Take a snapshot of the global stores; the caller closes it."""
        with self._changing:
            self._refuse_if_closed()
            return memory_engine() if self._take_globals is None else self._take_globals()

    # ---- for the commit ----------------------------------------------------------------------------------------------

    def after_commit(self, epoch: int) -> None:
        """Renew the snapshot after a commit, before the next one. Never blocks, never raises."""
        if self._current is not None and self._changing.acquire(blocking=False):
            try:
                self._let_go_of_old()
                if self._clock() - self._asked_at > IDLE_S:
                    self._replace(None)
                elif self._are_cheap and self._current.epoch != epoch:
                    self._replace(self._taken(epoch))
            except Exception:  # noqa: BLE001 - the next query takes a snapshot itself, and raises what is wrong
                _log.exception("cannot take a snapshot of the lanes after epoch %d; the next query retries", epoch)
                self._replace(None)
            finally:
                self._changing.release()
        if self._waiting:
            with self._committing:
                self._committing.notify_all()

    def close(self) -> None:
        """Close all snapshots and lanes; later queries raise `NotReadyError`."""
        self._is_closed = True
        with self._committing:
            self._committing.notify_all()
        with self._changing:
            self._replace(None)
            for snapshot in self._old:
                snapshot.close()
            self._old.clear()
            for lane in self._all_lanes:
                lane.close()

    # ---- with the lock held -------------------------------------------------------------------------------------------

    def _renewed(self) -> Snapshot:
        for _ in range(_ATTEMPTS):
            self._refuse_if_closed()
            epoch = self._committed()
            if self._current is not None and self._current.epoch == epoch:
                return self._current
            snapshot = self._taken(epoch)
            try:
                snapshot.views()
            except StateError:
                snapshot.close()
                if self._committed() == epoch:
                    raise
                continue  # the lanes have moved on to later epochs
            self._replace(snapshot)
            return snapshot
        raise QueryTimeoutError(f"Epochs are committed faster than lanes can be opened ({_ATTEMPTS} attempts). Retry the query.")

    def _taken(self, epoch: int) -> Snapshot:
        lanes: list[Engine] = []
        try:
            # Before the first commit the lanes may have no files yet.
            lanes.extend(lane.take() if epoch >= 0 else memory_engine() for lane in self._lanes)
            globals_ = None if self._take_globals is None else self._take_globals()
        except BaseException:
            for engine in lanes:
                engine.close()
            raise
        return Snapshot(epoch, lanes, self.program.shards, globals_)

    def _replace(self, snapshot: Snapshot | None) -> None:
        before, self._current = self._current, snapshot
        if before is not None:
            before.retire(self._clock())
            if not before.is_closed:
                self._old.append(before)

    def _let_go_of_old(self) -> None:
        if self._old:
            oldest = self._clock() - SCAN_S
            for place, snapshot in enumerate(self._old):
                too_old = (snapshot.retired_at or 0) < oldest or place < len(self._old) - _KEPT
                snapshot.close_if_unused(even_held=too_old)
            self._old = [snapshot for snapshot in self._old if not snapshot.is_closed]

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise NotReadyError(f"Application {self.program.application_id!r} has ended: its stores can no longer be queried.")


def _lanes_of(program: Program, server_of: Callable[[int], Address] | None) -> Sequence[Snapshots | RemoteSnapshots]:
    if server_of is not None:
        clients = LaneClients(program.server_key)
        return [RemoteSnapshots(clients, partial(server_of, lane), lane) for lane in range(program.lanes)]
    home = StateDirectory(program.directory, program.application_id)
    directories = [home.lane_directory(lane, program.lanes) for lane in range(program.lanes)]
    return [Snapshots(EngineFactory(program.engine, str(directory))) for directory in directories]


class Source:
    """One store of the committed state, as views read it: as of the last commit, or always of the `pinned` snapshot."""

    def __init__(self, state: CommittedState, store: str, pinned: Snapshot | None = None) -> None:
        self.spec: StoreSpec = state.spec(store)
        program, store = state.program, self.spec.name
        self._state = state
        self._pinned = pinned
        self._is_global = store in program.global_stores
        self._owner = (lambda key: 0) if self._is_global else program.shard_finder(store)
        self._is_anywhere = not self._is_global and program.keeps_own_keys(store)

    @property
    def epoch(self) -> int:
        """The epoch that a read now would be of."""
        return self._state.epoch if self._pinned is None else self._pinned.epoch

    def stores(self, snapshot: Snapshot) -> tuple[Any, ...]:
        """Return the store in each shard."""
        return snapshot.stores(self.spec, self._is_global)

    def count(self) -> int:
        """Return the approximate number of entries."""
        return self.read(lambda snapshot: snapshot.count(self.spec.name, self._is_global))[0]

    def find(self, key: bytes, ask: Callable[[Any], T | None]) -> tuple[T | None, int]:
        """Read a key in its shard, or in the others if keys may be anywhere; return what `ask` returns, and the epoch."""

        def read(snapshot: Snapshot) -> T | None:
            stores = self.stores(snapshot)
            owner = self._owner(key)
            found = ask(stores[owner]) if stores else None
            if found is None and self._is_anywhere:
                others = (ask(store) for shard, store in enumerate(stores) if shard != owner)
                found = next((answer for answer in others if answer is not None), None)
            return found

        return self.read(read)

    def read(self, read: Callable[[Snapshot], T]) -> tuple[T, int]:
        """Call `read` with a snapshot; return its result and the epoch."""
        pinned = self._pinned
        if pinned is None:
            return self._state.read(read)
        with pinned.lock:
            pinned.refuse_if_over(float("inf"))
            return read(pinned), pinned.epoch

    def scan(self, rows: Callable[[tuple[Any, ...]], Iterator[T]], key: bytes | None = None, seconds: float = SCAN_S) -> Scan[T]:
        """Scan the shards that may have `key`, or all shards."""
        snapshot = self._state.held() if self._pinned is None else self._pinned
        if self._pinned is not None and not snapshot.hold():
            snapshot.refuse_if_over(0)

        def begin() -> Iterator[T]:
            stores = self.stores(snapshot)
            if key is None or self._is_anywhere or not stores:
                return rows(stores)
            return rows((stores[self._owner(key)],))

        return Scan(snapshot, begin, time.monotonic() + seconds)


@contextmanager
def pinned(state: CommittedState, store: str) -> Iterator[Source]:
    """Pin a store to the current snapshot: all reads are of one epoch."""
    snapshot = state.held()
    try:
        yield Source(state, store, snapshot)
    finally:
        snapshot.release()
