"""A node's timers: set by its code for the key in hand, kept in a store of its own, fired by the lane when they are due."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from penstock.errors import SerializationError
from penstock.processor import Host, Timer, TimerKind
from penstock.records import NO_TIMESTAMP
from penstock.serdes import Serde
from penstock.state import StoreKind, StoreSpec, TimerEntry, TimerStore, timer_id
from penstock.timing import MAX_MS, Duration, Instant, duration_ms, instant_ms

_KINDS = tuple(TimerKind)

_written_ms = lru_cache(maxsize=256)(duration_ms)


def timers_store(node: str) -> str:
    """The name of the store of a node's timers."""
    return f"{node}-timers"


def timers_spec(node: str, key: Serde[Any]) -> StoreSpec:
    """The store of a node's timers, which are kept by keys of that serde."""
    return StoreSpec(timers_store(node), StoreKind.TIMERS, key)


class NodeTimers:
    """The timers of a node: a `TimerQueue` that hands each to `on_timer`, in the order of time, key and name."""

    def __init__(self, host: Host, store: str, on_timer: Callable[[TimerEntry, int], None]) -> None:
        self.store: TimerStore = host.store(store)
        self._at_timer = host.at_timer
        self._on_timer = on_timer
        self._is_held = False

    def earliest(self, kind: TimerKind) -> int | None:
        """See `TimerQueue`."""
        return self.store.earliest(kind)

    def first(self, kind: TimerKind, now: int) -> int | None:
        """See `TimerQueue`."""
        return None if self._is_held else self.store.first(kind, now)

    def fire(self, kind: TimerKind, now: int) -> bool:
        """See `TimerQueue`."""
        entry = None if self._is_held else self.store.take(kind, now)
        if entry is None:
            return False
        self._at_timer(entry.key, entry.time)
        self._on_timer(entry, now)
        return True

    def hold(self) -> None:
        """Fire no more of them in this round."""
        self._is_held = True

    def release(self) -> bool:
        """See `TimerQueue`."""
        was_held, self._is_held = self._is_held, False
        return was_held


class ProcessorTimers(NodeTimers):
    """The timers of a user's processor, and its `Timers` for the key in hand."""

    def __init__(self, host: Host, store: str, on_timer: Callable[[Timer], None]) -> None:
        super().__init__(host, store, self._fire)
        serde = host.spec(store).key
        assert serde is not None
        self._serde, self._write, self._read = serde, serde.serialize, serde.deserialize
        self._node, self._wall_clock, self._event_time = host.node, host.wall_clock, host.event_time
        self._call = on_timer
        self._firing: TimerEntry | None = None
        self._now = NO_TIMESTAMP
        self.key: Any = None
        """The key in hand, None between records."""
        self.timestamp = NO_TIMESTAMP
        """The event time of what is in hand."""

    def _fire(self, entry: TimerEntry, now: int) -> None:
        time, key, name, kind = entry
        self.key = self._read(key)
        self.timestamp = time if kind == TimerKind.EVENT_TIME else self._event_time()
        self._firing, self._now = entry, now
        try:
            self._call(Timer(self.key, name, time, _KINDS[kind]))
        finally:
            self._firing = self.key = None

    # ---- for user code --------------------------------------------------------------------------------------------

    def processing_time(self, *, after: Duration | None = None, at: Instant | None = None, name: str = "") -> None:
        """See `Timers`."""
        self._register(TimerKind.PROCESSING_TIME, self._wall_clock(), after, at, name)

    def event_time(self, *, after: Duration | None = None, at: Instant | None = None, name: str = "") -> None:
        """See `Timers`."""
        self._register(TimerKind.EVENT_TIME, self.timestamp, after, at, name)

    def get(self, name: str = "") -> Timer | None:
        """See `Timers`."""
        entry = self.store.get(self._id(name))
        return None if entry is None else self._timer(entry)

    def all(self) -> list[Timer]:
        """See `Timers`."""
        return [self._timer(entry) for entry in self.store.of_key(self._in_hand())]

    def delete(self, name: str = "") -> bool:
        """See `Timers`."""
        return self.store.delete(self._id(name))

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _register(self, kind: TimerKind, base: int, after: Duration | None, at: Instant | None, name: str) -> None:
        if (after is None) == (at is None):
            raise ValueError(f"{self._node}: a timer is registered with either after= or at=")
        if at is not None:
            time = instant_ms(at, "at=")
        else:
            assert after is not None
            if base == NO_TIMESTAMP:
                raise ValueError(f"{self._node}: there is no event time yet for after= to count from; say at=")
            time = base + (after if type(after) is int else _written_ms(after, "after="))
        firing = self._firing
        if firing is not None and firing.kind == kind and time <= firing.time:
            time = self._now + 1  # or it would fire again and again in this very round
        if not 0 <= time <= MAX_MS:
            raise ValueError(f"{self._node}: a timer's time is 0 or later, and fits into 63 bits: {time}")
        self.store.register(timer_id(self._in_hand(), name), kind, time)

    def _id(self, name: str) -> bytes:
        return timer_id(self._in_hand(), name)

    def _in_hand(self) -> bytes:
        """The bytes of the key in hand."""
        key = self.key
        if key is None:
            raise ValueError(
                f"{self._node}: a timer belongs to the key of the record or timer in hand, and there is none; "
                f"records without a key and punctuators cannot have timers"
            )
        try:
            return self._write(key)
        except Exception as error:
            raise SerializationError(
                f"a timer's key is written by {self._serde!r}, as records are keyed where {self._node} stands, and that "
                f"cannot write {key!r}: {error}. Say key= where the records are read, or repartition(key=...) them"
            ) from error

    def _timer(self, entry: TimerEntry) -> Timer:
        return Timer(self.key, entry.name, entry.time, _KINDS[entry.kind])
