"""The timers of one node: by key and name, to be replaced or deleted, and by time, to be fired.

A timer is one logged entry by key, plus one entry by time, which is not logged because it follows from the first. A postponed
timer keeps its entry by time, which is then too early, and moves it when it is reached; so a time-out that every record of a key
postpones costs one write per epoch, not three. Registrations are only noted, and entered when timers fire or the epoch ends, in
the order of their ids, in which an engine reads fastest. Of the entries by time in the engine only the next few are held as
objects; those of the epoch itself are in a heap beside them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import heappop, heappush
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from penstock.state.bounds import MAX_TIME, after, after_prefix
from penstock.state.store import StateStore

if TYPE_CHECKING:
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard

AHEAD_MS = 1_000
"""At the end of an epoch, postponed timers whose entry by time is at most this far ahead of the clock are moved."""

_END = b"\x00\x00"
_ZERO, _ESCAPED_ZERO = b"\x00", b"\x00\xff"
_NOWHERE = b""
_HEAD = 9
_SMALLEST_CHUNK = 16
_LARGEST_CHUNK = 4096

_new = tuple.__new__  # cheaper than TimerEntry(...), once per timer that fires
_pack = Struct(">BQ").pack
_unpack_from = Struct(">BQ").unpack_from


class TimerEntry(NamedTuple):
    """A stored timer; `kind` is the number of its clock."""

    time: int
    key: bytes
    name: str
    kind: int


def timer_id(key: bytes, name: str) -> bytes:
    """Return key and name as bytes that sort by key, then by name."""
    return key.replace(_ZERO, _ESCAPED_ZERO) + _END + name.encode()


def timer_key(timer: bytes) -> bytes:
    """Return the key in a timer's id."""
    return timer[: timer.index(_END)].replace(_ESCAPED_ZERO, _ZERO)


class TimerStore(StateStore):
    """Timers by key and name, each on one of two clocks, numbered 0 and 1."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        self.name: str = spec.name
        self._by_key = shard.space(spec.name, _logged if spec.logged else None)
        self._by_time = shard.space(f"{spec.name}/due")
        self._fronts = (TimerFront(0), TimerFront(1))
        self._noted: dict[bytes, bytes | None] = {}

    # ---- by key -----------------------------------------------------------------------------------------------------

    def get(self, timer: bytes) -> TimerEntry | None:
        """Return the timer of that id."""
        noted = self._noted
        value = noted[timer] if timer in noted else self._by_key.get(timer)
        return None if value is None else _entry(timer, value)

    def of_key(self, key: bytes) -> Iterator[TimerEntry]:
        """Yield all timers of a key, by name."""
        self._enter()
        prefix = timer_id(key, "")
        for timer, value in self._by_key.scan(prefix, after_prefix(prefix)):
            yield _entry(timer, value)

    def all(self) -> Iterator[tuple[bytes, TimerEntry]]:
        """Yield all timers by id, ordered by key and name."""
        self._enter()
        for timer, value in self._by_key.scan():
            yield timer, _entry(timer, value)

    def approximate_num_entries(self) -> int:
        """Return the number of timers."""
        self._enter()
        return self._by_key.count()

    def register(self, timer: bytes, kind: int, time: int) -> None:
        """Register a timer for a time; it replaces an earlier registration."""
        self._noted[timer] = _pack(kind, time)
        front = self._fronts[kind]
        front.earliest = min(front.earliest, time)

    def delete(self, timer: bytes) -> bool:
        """Delete a timer; return whether there was one."""
        was_there = self.get(timer) is not None
        self._noted[timer] = None
        return was_there

    # ---- by time ----------------------------------------------------------------------------------------------------

    def front(self, kind: int) -> TimerFront:
        """Return the first timers of a clock; its `earliest` says before which time none is due."""
        return self._fronts[kind]

    def first(self, kind: int, until: int) -> int | None:
        """Return when the first timer of a clock is due; None if that is after `until`."""
        front = self._fronts[kind]
        front.clock = until
        if until < front.earliest:
            return None
        position = self._first(front, until)
        return None if position is None else front.earliest

    def take(self, kind: int, until: int) -> TimerEntry | None:
        """Remove and return the first timer of a clock that is due at `until`; None if none is due."""
        return next(self.due(kind, until), None)

    def due(self, kind: int, until: int) -> Iterator[TimerEntry]:
        """Remove and yield the timers of a clock that are due at `until`, including those that are registered meanwhile."""
        front = self._fronts[kind]
        front.clock = until
        if until < front.earliest:
            return
        noted, read, added = self._noted, front.read, front.added
        by_key, by_time, stored, base = self._by_key.dirty, self._by_time.dirty, self._by_key.base, self._by_time.base
        limit, current, time = _pack(kind, until + 1), b"", 0
        while True:
            position = read[-1] if read and not added and not noted else _NOWHERE
            timer, due = position[_HEAD:], position[:_HEAD]
            if stored.get(timer) == due and timer not in by_key and position < limit:
                read.pop()  # as it was read: most are
            else:
                found = self._first(front, until)
                if found is None:
                    return
                front.pop()
                position, timer, due = found, found[_HEAD:], found[:_HEAD]
            if due != current:
                current, time = due, _unpack_from(due)[1]
                front.earliest = time
            if position not in base:
                base[position] = b""
            by_time[position] = by_key[timer] = None
            end = timer.index(_END)
            yield _new(TimerEntry, (time, timer[:end].replace(_ESCAPED_ZERO, _ZERO), timer[end + 2 :].decode(), kind))

    def earliest(self, kind: int) -> int | None:
        """Return a time before which no timer of a clock is due: that of the first one, or from before it was postponed."""
        self._enter()
        position = self._next(self._fronts[kind], -1)
        return None if position is None else int(_unpack_from(position)[1])

    # ---- for the shard ----------------------------------------------------------------------------------------------

    def before_commit(self) -> None:
        """See `StateStore`; moves postponed timers that would be reached soon, so that the lane does not wake up for them."""
        self._enter()
        if self._by_key.dirty:
            for front in self._fronts:
                self._first(front, front.clock + AHEAD_MS)

    def discard(self) -> None:
        """See `StateStore`."""
        self._noted.clear()
        for front in self._fronts:
            front.forget()

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """See `StateStore`."""
        self._noted.update(zip(keys, values, strict=True))
        self._enter()

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Enter the noted registrations, by key and by time."""
        noted = self._noted
        if not noted:
            return
        timers = sorted(noted)
        current, by_key, by_time, base = (
            self._by_key.get_many(timers),
            self._by_key.bulk(),
            self._by_time.bulk(),
            self._by_time.base,
        )
        fronts = self._fronts
        for timer, before in zip(timers, current, strict=True):
            value = noted[timer]
            if before is not None:
                position = _position(timer, before)
                if value is not None and position[0] == value[0] and position[:_HEAD] <= value:
                    by_key[timer] = value if position[:_HEAD] == value else value + position[1:_HEAD]
                    continue
                self._remove(position)
            elif value is None:
                continue
            by_key[timer] = value
            if value is not None:
                position = value + timer
                if position not in base:
                    base[position] = None  # a timer has one entry by time: the engine has no other
                by_time[position] = b""
                heappush(fronts[value[0]].added, position)
        noted.clear()

    def _first(self, front: TimerFront, until: int) -> bytes | None:
        """Return the position of the first timer that is due; move postponed timers to their time."""
        by_key = self._by_key
        while True:
            if self._noted:
                self._enter()
            position = self._next(front, until)
            if position is None:
                front.earliest = MAX_TIME
                return None
            time: int = _unpack_from(position)[1]
            front.earliest = time
            if time > until:
                return None
            timer = position[_HEAD:]
            value = by_key.get(timer)
            assert value is not None, "an entry by time without one by key"
            due = value[:_HEAD]
            if due == position[:_HEAD]:
                return position
            front.pop()
            self._remove(position)
            by_key.put(timer, due)
            moved = due + timer
            self._by_time.base.setdefault(moved, None)
            self._by_time.put(moved, b"")
            heappush(front.added, moved)

    def _next(self, front: TimerFront, until: int) -> bytes | None:
        """Return the first of a clock's entries by time; read more from the engine if need be."""
        read, added, removed = front.read, front.added, self._by_time.dirty
        while True:
            if not read and front.following is not None:
                self._load(front, until)
            if added and not (read and read[-1] < added[0]):
                position = added[0]
            elif read:
                position = read[-1]
            else:
                return None
            if removed.get(position, b"") is not None:
                return position
            front.pop()

    def _remove(self, position: bytes) -> None:
        self._by_time.base.setdefault(position, b"")
        self._by_time.dirty[position] = None

    def _load(self, front: TimerFront, until: int) -> None:
        """Read the next positions from the engine, and the timers of those that are due."""
        assert front.following is not None
        found = self._by_time.stored_keys(front.following, _pack(front.kind + 1, 0), front.chunk)
        front.following = after(found[-1]) if len(found) == front.chunk else None
        front.chunk = min(4 * front.chunk, _LARGEST_CHUNK)
        if until >= 0:
            self._by_key.read_ahead([position[_HEAD:] for position in found[: bisect_left(found, _pack(front.kind, until + 1))]])
        found.reverse()
        front.read[:] = found


class TimerFront:
    """The first of a clock's entries by time: of the engine's, as far as they are read, and all that the epoch has added.

    `read` has the former in reverse order, and `following` is where the next begin (None: there are no more); `added` is a heap.
    Entries that the epoch has removed are still in both. None is before `earliest`. `clock` is the clock's last known time.
    """

    __slots__ = ("added", "chunk", "clock", "earliest", "following", "kind", "read")

    def __init__(self, kind: int) -> None:
        self.kind: int = kind
        self.read: list[bytes] = []
        self.added: list[bytes] = []
        self.forget()

    def forget(self) -> None:
        """Start again from what the engine has."""
        self.read.clear()
        self.added.clear()
        self.following: bytes | None = _pack(self.kind, 0)
        self.earliest: int = 0
        self.clock: int = -1
        self.chunk: int = _SMALLEST_CHUNK

    def pop(self) -> None:
        """Remove the first entry."""
        read, added = self.read, self.added
        if added and not (read and read[-1] < added[0]):
            heappop(added)
        else:
            read.pop()


def _entry(timer: bytes, value: bytes) -> TimerEntry:
    kind, time = _unpack_from(value)
    end = timer.index(_END)
    return TimerEntry(time, timer[:end].replace(_ESCAPED_ZERO, _ZERO), timer[end + 2 :].decode(), kind)


def _position(timer: bytes, value: bytes) -> bytes:
    """Return the position of a timer's entry by time: at its time, or earlier if it was postponed."""
    return (value if len(value) == _HEAD else value[:1] + value[_HEAD:]) + timer


def _logged(timers: list[bytes], values: list[bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
    """Return the changelog rows: when a timer is due, without the position of its entry by time."""
    return timers, [value and value[:_HEAD] for value in values]
