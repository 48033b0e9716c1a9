"""The timers of one node: by key and name, to be replaced or deleted, and by time, to be fired.

A timer is one logged entry by key. Beside it lies one entry by time, which is not logged: it follows from the first. A timer that
is put off leaves its entry by time where it is, too early, and moves it on when it is reached; a time-out that every record of a
key puts off so costs one write an epoch and not three. What code registers is only noted, and entered when timers are to fire or
the epoch ends. Of the entries by time only the next few are ever held as objects.
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
"""How far a timer's entry by time may be from the clock and still be put where it belongs at the end of an epoch."""

_END = b"\x00\x00"
_ZERO, _ESCAPED_ZERO = b"\x00", b"\x00\xff"
_HEAD = 9
_SMALLEST_CHUNK = 16
_LARGEST_CHUNK = 4096

_pack = Struct(">BQ").pack
_unpack_from = Struct(">BQ").unpack_from


class TimerEntry(NamedTuple):
    """A timer as it is kept: `kind` is the number of its clock."""

    time: int
    key: bytes
    name: str
    kind: int


def timer_id(key: bytes, name: str) -> bytes:
    """Key and name as bytes that are in the order of keys, then of names."""
    return key.replace(_ZERO, _ESCAPED_ZERO) + _END + name.encode()


def timer_key(timer: bytes) -> bytes:
    """The key in a timer's id."""
    return timer[: timer.index(_END)].replace(_ESCAPED_ZERO, _ZERO)


class TimerStore:
    """Timers by key and name, each on one of two clocks, which are numbered 0 and 1."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        self.name = spec.name
        self._by_key = shard.space(spec.name, _logged if spec.logged else None)
        self._by_time = shard.space(f"{spec.name}/due")
        self._fronts = (Front(0), Front(1))
        self._noted: dict[bytes, bytes | None] = {}

    # ---- by key -----------------------------------------------------------------------------------------------------

    def get(self, timer: bytes) -> TimerEntry | None:
        """The timer of that id."""
        noted = self._noted
        value = noted[timer] if timer in noted else self._by_key.get(timer)
        return None if value is None else _entry(timer, value)

    def of_key(self, key: bytes) -> Iterator[TimerEntry]:
        """All timers of a key, by name."""
        self._enter()
        prefix = timer_id(key, "")
        for timer, value in self._by_key.scan(prefix, after_prefix(prefix)):
            yield _entry(timer, value)

    def all(self) -> Iterator[tuple[bytes, TimerEntry]]:
        """All timers by id, in the order of keys and names."""
        self._enter()
        for timer, value in self._by_key.scan():
            yield timer, _entry(timer, value)

    def approximate_num_entries(self) -> int:
        """How many timers there are."""
        self._enter()
        return self._by_key.count()

    def register(self, timer: bytes, kind: int, time: int) -> None:
        """Have a timer fire at a time, in place of what it was registered for before."""
        self._noted[timer] = _pack(kind, time)
        front = self._fronts[kind]
        front.earliest = min(front.earliest, time)

    def delete(self, timer: bytes) -> bool:
        """Let a timer never fire; whether there was one."""
        was_there = self.get(timer) is not None
        self._noted[timer] = None
        return was_there

    # ---- by time ----------------------------------------------------------------------------------------------------

    def first(self, kind: int, until: int) -> int | None:
        """When the first timer of a clock is due that has come to `until`; None if that is later."""
        front = self._fronts[kind]
        front.clock = until
        if until < front.earliest:
            return None
        position = self._first(front, until)
        return None if position is None else front.earliest

    def take(self, kind: int, until: int) -> TimerEntry | None:
        """The first timer of a clock that has come to `until`, which is gone then; None if none is due."""
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
        """Before when no timer of a clock is due: the time of the first one, or the time it was put off from."""
        self._enter()
        position = next((key for key, _ in self._by_time.scan(_pack(kind, 0), _pack(kind + 1, 0))), None)
        return None if position is None else int(_unpack_from(position)[1])

    # ---- for the shard ----------------------------------------------------------------------------------------------

    def before_commit(self) -> None:
        """See `Store`; what was put off and would be reached soon moves on, so that nobody is woken for it."""
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
        """Enter what was noted, by key and by time."""
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
                    base[position] = None  # a timer has one entry by time: there is no such one in the engine
                by_time[position] = b""
                front = fronts[value[0]]
                if front.end is None or position < front.end:
                    heappush(front.added, position)

    def _first(self, front: Front, until: int) -> bytes | None:
        """The position of the first timer that is due; what was put off moves to its time on the way."""
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
        """Read the next positions; whether there are any."""
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
    """The first of a clock's entries by time, as far as they have been read.

    `read` and `added` hold all that are before `end`, which is None when there are no others: those that were read, the last
    one first, and a heap of those that came since. None is before `earliest`. `clock` is what it was when last looked at.
    """

    __slots__ = ("added", "chunk", "clock", "earliest", "end", "kind", "read")

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.read: list[bytes] = []
        self.added: list[bytes] = []
        self.end: bytes | None = _pack(kind, 0)
        self.earliest = 0
        self.clock = -1
        self.chunk = _SMALLEST_CHUNK

    def peek(self) -> bytes | None:
        """The first of them."""
        read, added = self.read, self.added
        if added and not (read and read[-1] < added[0]):
            return added[0]
        return read[-1] if read else None

    def pop(self) -> None:
        """Let go of the first of them."""
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
    """Where a timer's entry by time lies: at its time, or earlier if it was put off."""
    return (value if len(value) == _HEAD else value[:1] + value[_HEAD:]) + timer


def _logged(timers: list[bytes], values: list[bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
    """The changelog has when a timer is due, and not where its entry by time happens to lie."""
    return timers, [value and value[:_HEAD] for value in values]
