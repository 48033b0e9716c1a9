"""The timers of one node: by key and name, to be replaced or deleted, and by time, to be fired.

A timer is one logged entry by key, plus one entry by time, which is not logged because it follows from the first. A postponed
timer keeps its entry by time, which is then too early, and moves it when it is reached; so a time-out that every record of a key
postpones costs one write per epoch, not three. Registrations are only noted, and entered when timers fire or the epoch ends. Of
the entries by time only the next few are held as objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from penstock.state.bounds import MAX_TIME, after, after_prefix

if TYPE_CHECKING:
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard

AHEAD_MS = 1_000
"""At the end of an epoch, postponed timers whose entry by time is at most this far ahead of the clock are moved."""

_END = b"\x00\x00"
_ZERO, _ESCAPED_ZERO = b"\x00", b"\x00\xff"
_HEAD = 9
_SMALLEST_CHUNK = 16
_LARGEST_CHUNK = 4096

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


class TimerStore:
    """Timers by key and name, each on one of two clocks, numbered 0 and 1."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        self.name: str = spec.name
        self._by_key = shard.space(spec.name, _logged if spec.logged else None)
        self._by_time = shard.space(f"{spec.name}/due")
        self._fronts = (Front(0), Front(1))
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
        front = self._fronts[kind]
        front.clock = until
        if until < front.earliest:
            return None
        position = self._first(front, until)
        if position is None:
            return None
        front.pop()
        timer = position[_HEAD:]
        self._by_time.base.setdefault(position, b"")
        self._by_time.dirty[position] = self._by_key.dirty[timer] = None
        end = timer.index(_END)
        return TimerEntry(front.earliest, timer[:end].replace(_ESCAPED_ZERO, _ZERO), timer[end + 2 :].decode(), kind)

    def earliest(self, kind: int) -> int | None:
        """Return a time before which no timer of a clock is due: that of the first one, or from before it was postponed."""
        self._enter()
        position = next((key for key, _ in self._by_time.scan(_pack(kind, 0), _pack(kind + 1, 0))), None)
        return None if position is None else int(_unpack_from(position)[1])

    # ---- for the shard ----------------------------------------------------------------------------------------------

    def before_commit(self) -> None:
        """See `Store`; moves postponed timers that would be reached soon, so that the lane does not wake up for them."""
        self._enter()
        if self._by_key.dirty:
            for front in self._fronts:
                self._first(front, front.clock + AHEAD_MS)

    def discard(self) -> None:
        """See `Store`."""
        self._noted = {}
        self._fronts = (Front(0), Front(1))

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """See `Store`."""
        self._noted.update(zip(keys, values, strict=True))
        self._enter()

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Enter the noted registrations, by key and by time."""
        if not self._noted:
            return
        noted, self._noted = self._noted, {}
        get, by_key, by_time, base = self._by_key.get, self._by_key.bulk(), self._by_time.bulk(), self._by_time.base
        fronts = self._fronts
        for timer, value in noted.items():
            before = get(timer)
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
                front = fronts[value[0]]
                if front.end is None or position < front.end:
                    heappush(front.added, position)

    def _first(self, front: Front, until: int) -> bytes | None:
        """Return the position of the first timer that is due; move postponed timers to their time."""
        while True:
            if self._noted:
                self._enter()
            position = front.peek() if front.added or not front.read else front.read[-1]
            if position is None:
                if not self._load(front):
                    front.earliest = MAX_TIME
                    return None
                continue
            time: int = _unpack_from(position)[1]
            front.earliest = time
            if time > until:
                return None
            timer = position[_HEAD:]
            value = self._by_key.get(timer)
            if value == position[:_HEAD]:
                return position
            front.pop()
            if value is not None and _position(timer, value) == position:
                self._remove(position)
                self._by_key.dirty[timer] = None
                self._noted[timer] = value[:_HEAD]

    def _remove(self, position: bytes) -> None:
        self._by_time.base.setdefault(position, b"")
        self._by_time.dirty[position] = None

    def _load(self, front: Front) -> bool:
        """Read the next positions; return whether there are any."""
        if front.end is None:
            return False
        scanned = islice(self._by_time.scan(front.end, _pack(front.kind + 1, 0)), front.chunk)
        found = [position for position, _ in scanned]
        front.end = after(found[-1]) if len(found) == front.chunk else None
        front.chunk = min(4 * front.chunk, _LARGEST_CHUNK)
        found.reverse()
        front.read = found
        return bool(found)


class Front:
    """The first of a clock's entries by time, as far as they are loaded.

    `read` and `added` hold all entries before `end` (None: all there are): those that were read, in reverse order, and a heap of
    those added since. None is before `earliest`. `clock` is the clock's last known time.
    """

    __slots__ = ("added", "chunk", "clock", "earliest", "end", "kind", "read")

    def __init__(self, kind: int) -> None:
        self.kind: int = kind
        self.read: list[bytes] = []
        self.added: list[bytes] = []
        self.end: bytes | None = _pack(kind, 0)
        self.earliest: int = 0
        self.clock: int = -1
        self.chunk: int = _SMALLEST_CHUNK

    def peek(self) -> bytes | None:
        """Return the first entry."""
        read, added = self.read, self.added
        if added and not (read and read[-1] < added[0]):
            return added[0]
        return read[-1] if read else None

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
