"""A node's timers: registered by its code for the current key, kept in a separate store, fired by the lane when due."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any

from penstock.errors import SerializationError
from penstock.hosted import TimerKind
from penstock.processor import Host, Timer
from penstock.records import NO_TIMESTAMP
from penstock.serdes import Serde
from penstock.state import StoreKind, StoreSpec, TimerEntry, TimerFront, TimerStore, timer_id
from penstock.timing import MAX_MS, Duration, Instant, duration_ms, instant_ms

_KINDS = tuple(TimerKind)

_new = tuple.__new__  # cheaper than Timer(...), once per timer that fires
_written_ms = lru_cache(maxsize=256)(duration_ms)


def timers_store(node: str) -> str:
    """Return the name of a node's timer store."""
    return f"{node}-timers"


def timers_spec(node: str, key: Serde[Any]) -> StoreSpec:
    """Return the store of a node's timers; `key` is the serde of their keys."""
    return StoreSpec(timers_store(node), StoreKind.TIMERS, key)


class NodeTimers:
    """The timers of a node: a `TimerQueue` that passes each to `on_timer`, ordered by time, key and name."""

    def __init__(self, host: Host, store: str, on_timer: Callable[[TimerEntry, int], None]) -> None:
        self._follow(host, store, on_timer)

    def _follow(self, host: Host, store: str, on_timer: Callable[[TimerEntry, int], None]) -> None:
        self.store: TimerStore = host.store(store)
        self._at_timer = host.cursor.at_timer
        self._on_timer = on_timer
        self._is_held = False

    def earliest(self, kind: TimerKind) -> int | None:
        """See `TimerQueue`."""
        return self.store.earliest(kind)

    def front(self, kind: TimerKind) -> TimerFront:
        """See `TimerQueue`."""
        return self.store.front(kind)

    def first(self, kind: TimerKind, now: int) -> int | None:
        """See `TimerQueue`."""
        return None if self._is_held else self.store.first(kind, now)

    def fire(self, kind: TimerKind, now: int, most: int | None = None) -> None:
        """See `TimerQueue`."""
        if self._is_held:
            return
        at_timer, on_timer = self._at_timer, self._on_timer
        for entry in islice(self.store.due(kind, now), most):
            at_timer(entry[1], entry[0])
            on_timer(entry, now)
            if self._is_held:
                return

    def hold(self) -> None:
        """Fire no more of them in this round."""
        self._is_held = True

    def release(self) -> bool:
        """See `TimerQueue`."""
        was_held, self._is_held = self._is_held, False
        return was_held


class ProcessorTimers(NodeTimers):
    """The timers of a user's processor, and its `Timers` for the current key; they are bound to one lane after the other."""

    def __init__(self) -> None:
        self.key: Any = None
        """The current key, None between records."""
        self.timestamp: int = NO_TIMESTAMP
        """The event time of the current record."""

    def bind(self, host: Host, store: str, on_timer: Callable[[Timer], None]) -> None:
        """Bind them to the lane of the next epoch."""
        self._follow(host, store, self._fire)
        serde = host.spec(store).key
        assert serde is not None
        self._serde, self._write, self._read = serde, serde.serialize, serde.deserialize
        self._node, self._wall_clock, self._event_time = host.node, host.time.wall_clock, host.time.event_time
        self._call = on_timer
        self._firing: TimerEntry | None = None
        self._now = NO_TIMESTAMP

    def _fire(self, entry: TimerEntry, now: int) -> None:
        time, key, name, kind = entry
        self.key = current = self._read(key)
        self._firing, self._now = entry, now
        try:
            self._call(_new(Timer, (current, name, time, _KINDS[kind])))
        finally:
            self._firing = self.key = None

    # ---- for user code --------------------------------------------------------------------------------------------

    def processing_time(self, *, after: Duration | None = None, at: Instant | None = None, name: str = "") -> None:
        """See `Timers`."""
        self._register(TimerKind.PROCESSING_TIME, self._wall_clock, after, at, name)

    def event_time(self, *, after: Duration | None = None, at: Instant | None = None, name: str = "") -> None:
        """See `Timers`."""
        self._register(TimerKind.EVENT_TIME, self._current_event_time, after, at, name)

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

    def _register(self, kind: TimerKind, clock: Callable[[], int], after: Duration | None, at: Instant | None, name: str) -> None:
        if (after is None) == (at is None):
            raise ValueError(f"{self._node}: pass either after= or at= to register a timer.")
        if at is not None:
            time = instant_ms(at, "at=")
        else:
            assert after is not None
            now = clock()
            if now == NO_TIMESTAMP:
                raise ValueError(f"{self._node}: after= counts from the event time, and there is none yet. Use at= instead.")
            time = now + (after if type(after) is int else _written_ms(after, "after="))
        firing = self._firing
        if firing is not None and firing.kind == kind and time <= firing.time:
            time = self._now + 1  # or it would fire repeatedly in this round
        if not 0 <= time <= MAX_MS:
            raise ValueError(f"{self._node}: invalid timer time {time}: it must be between 0 and {MAX_MS}.")
        self.store.register(timer_id(self._in_hand(), name), kind, time)

    def _current_event_time(self) -> int:
        """Return the event time of the current record, or that of the timer: its own, or what its node has reached."""
        firing = self._firing
        if firing is None:
            return self.timestamp
        return firing.time if firing.kind == TimerKind.EVENT_TIME else self._event_time()

    def _id(self, name: str) -> bytes:
        return timer_id(self._in_hand(), name)

    def _in_hand(self) -> bytes:
        """Return the bytes of the current key."""
        key = self.key
        if key is None:
            raise ValueError(
                f"{self._node}: a timer belongs to the current record's or timer's key, and there is none. "
                f"Records without a key and punctuators cannot have timers."
            )
        try:
            return self._write(key)
        except Exception as error:
            raise SerializationError(
                f"{self._node}: the key serde of its input, {self._serde!r}, cannot serialize the timer's key {key!r}: {error}. "
                f"Pass key= where the records are read, or call repartition(key=...)."
            ) from error

    def _timer(self, entry: TimerEntry) -> Timer:
        return Timer(self.key, entry.name, entry.time, _KINDS[entry.kind])
