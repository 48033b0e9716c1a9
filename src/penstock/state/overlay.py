"""The overlay: an epoch's writes in memory, until they are written to the engine, and the shard's registers.

Reads see the overlay first. Values read from the engine are remembered, because they are the undo data at the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from sortedcontainers import SortedList

from penstock.errors import StateError
from penstock.state.bounds import after, after_prefix

if TYPE_CHECKING:
    from penstock.state.engines.engine import Engine

Columns = tuple[list[bytes], "list[bytes | None]"]
"""Keys and their values; None means no value."""

Log = Callable[[list[bytes], "list[bytes | None]"], Columns]
"""Converts a store's rows to its changelog's."""

_FIRST_CHUNK = 16
_LARGEST_CHUNK = 4096
_WORTH_SKIPPING = 8


@dataclass(slots=True)
class Register:
    """An integer in a shard's state: committed and rolled back with the epoch."""

    value: int


class Registers:
    """A shard's registers by name. The same name is the same register."""

    def __init__(self, saved: dict[str, int]) -> None:
        self._saved = saved
        self._open: dict[str, tuple[Register, int]] = {}

    def register(self, name: str, initial: int) -> Register:
        """Return the register of that name, which starts as `initial` in a new shard."""
        found = self._open.get(name)
        if found is None:
            found = self._open[name] = (Register(self._saved.get(name, initial)), initial)
        return found[0]

    def snapshot(self) -> dict[str, int]:
        """Return all current values, including registers that were not used since the shard was opened."""
        return {**self._saved, **{name: register.value for name, (register, _) in self._open.items()}}

    @property
    def have_moved(self) -> bool:
        """Whether any value is new or differs from the last commit."""
        saved = self._saved
        return any(register.value != saved.get(name) for name, (register, _) in self._open.items())

    @property
    def saved(self) -> dict[str, int]:
        """All values as of the last commit."""
        return self._saved

    def reset(self, saved: dict[str, int]) -> None:
        """Set `saved` as the committed values, and every register to them."""
        self._saved = saved
        for name, (register, initial) in self._open.items():
            register.value = saved.get(name, initial)


class Space:
    """One named byte map of a shard, with the epoch's writes on top.

    The engine's map of that name holds all shards of a lane: `prefix` starts the keys of this one. `dirty` and `base` keep
    their identity from epoch to epoch, so a store may keep references to them. `log` converts rows for the changelog, None for
    no changelog; with `log_all`, deletions of missing keys are logged too.
    """

    __slots__ = ("_dead", "_end", "_engine", "_front", "_order", "base", "dirty", "log", "log_all", "name", "prefix", "silent")

    def __init__(self, engine: Engine, prefix: bytes, name: str, log: Log | None, log_all: bool) -> None:
        self._engine = engine
        self.prefix: bytes = prefix
        self._end = after_prefix(prefix)
        self.name: str = name
        self.log: Log | None = log
        self.log_all: bool = log_all
        self.dirty: dict[bytes, bytes | None] = {}
        self.base: dict[bytes, bytes | None] = {}
        self.silent: set[bytes] = set()
        # For scans, and empty before the first one: written keys in order; deleted keys that left that order; and where a scan
        # from a certain key may start, because all that the engine has before is deleted.
        self._order = SortedList()
        self._dead: set[bytes] = set()
        self._front: dict[bytes | None, bytes] = {}

    def reopen(self, engine: Engine) -> None:
        """Go on with another engine, which has what has been committed."""
        self._engine = engine

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key as this epoch sees it."""
        dirty = self.dirty
        if key in dirty:
            return dirty[key]
        base = self.base
        if key in base:
            return base[key]
        value = base[key] = self._engine.get(self.name, self.prefix + key)
        return value

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of several ascending keys as this epoch sees them."""
        dirty, base = self.dirty, self.base
        self.read_ahead(keys)
        return [dirty[key] if key in dirty else base[key] for key in keys]

    def read_ahead(self, keys: list[bytes]) -> None:
        """Read several ascending keys at once, because each will be asked for."""
        dirty, base = self.dirty, self.base
        self._remember([key for key in keys if key not in base and key not in dirty] if base or dirty else keys)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a key's value; None deletes it."""
        if self._dead and value is not None and key in self._dead:
            self._dead.discard(key)
            self._order.add(key)
        self.dirty[key] = value

    def bulk(self) -> dict[bytes, bytes | None]:
        """Return the dict for writing many keys; the caller must not use the space in between."""
        self._order.update(self._dead)
        self._dead.clear()
        return self.dirty

    def expire(self, key: bytes, value: bytes) -> None:
        """Delete a key, whose value was just scanned, without a changelog row."""
        if key not in self.dirty:
            self.base[key] = value
        self.dirty[key] = None
        self.silent.add(key)

    def scan(
        self, lower: bytes | None = None, upper: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from `lower` (inclusive) to `upper` (exclusive) with their values, in byte order or backwards.

        Writes during a scan are allowed; whether the scan sees writes ahead of it is undefined.
        """
        if upper is not None and (lower or b"") >= upper:
            return iter(())
        if not self.dirty:
            return self._stored(lower, upper, reverse)
        start = lower if reverse else self._front.get(lower, lower)
        if upper is not None and (start or b"") >= upper:
            stored: Iterator[tuple[bytes, bytes]] = iter(())
        else:
            stored = self._stored(start, upper, reverse)
        return self._merge(lower, stored, self._written(lower, upper, reverse), reverse)

    def count(self) -> int:
        """Return the number of keys in the space. The engine counts all shards of a lane together, so this reads every key."""
        return sum(1 for _ in self.scan())

    def changes(self) -> tuple[list[bytes], list[bytes | None], list[bytes | None]]:
        """Return the epoch's changes: keys ascending, their new values, their old values."""
        dirty, base = self.dirty, self.base
        keys = sorted(dirty)
        if not dirty.keys() <= base.keys():  # most were read before they were written
            self._remember([key for key in keys if key not in base] if base else keys)
        values, old = list(map(dirty.__getitem__, keys)), list(map(base.__getitem__, keys))
        if None in values and None in old:  # a key that was missing before and is missing now is no change
            keys = [key for key in keys if dirty[key] is not None or base[key] is not None]
            values, old = list(map(dirty.__getitem__, keys)), list(map(base.__getitem__, keys))
        return keys, values, old

    def logged(self, keys: list[bytes], values: list[bytes | None]) -> Columns | None:
        """Return the changelog rows of the changes; None if there are none."""
        if self.log is None:
            return None
        if self.log_all and len(keys) < len(self.dirty):
            keys = sorted(self.dirty)
            values = list(map(self.dirty.__getitem__, keys))
        silent = self.silent
        if silent:
            keys = [key for key in keys if key not in silent]
            values = list(map(self.dirty.__getitem__, keys))
        rows = self.log(keys, values)
        return rows if rows[0] else None

    def _remember(self, keys: list[bytes]) -> None:
        """Read the values of keys from the engine into `base`."""
        prefix = self.prefix
        if keys:
            self.base.update(zip(keys, self._engine.get_many(self.name, [prefix + key for key in keys]), strict=True))

    def stored_keys(self, lower: bytes, upper: bytes, most: int) -> list[bytes]:
        """Return the first keys within bounds that the engine has, whatever the epoch has written."""
        prefix, size = self.prefix, len(self.prefix)
        found = self._engine.scan(self.name, prefix + lower, prefix + upper)
        return [key[size:] for key, _ in islice(found, most)]

    def _stored(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield the engine's entries of this shard within bounds."""
        prefix, size = self.prefix, len(self.prefix)
        end = self._end if upper is None else prefix + upper
        return ((key[size:], value) for key, value in self._engine.scan(self.name, prefix + (lower or b""), end, reverse))

    def clear(self) -> None:
        """Forget the epoch."""
        self.dirty.clear()
        self.base.clear()
        self.silent.clear()
        self._order.clear()
        self._dead.clear()
        self._front.clear()

    def _sorted(self) -> SortedList:
        """Return the keys that the epoch wrote, in order, including those added since the last scan.

        A dict keeps insertion order and no key leaves it before the epoch ends, so the newest keys are at its end.
        """
        order, dirty = self._order, self.dirty
        fresh = len(dirty) - len(order) - len(self._dead)
        if fresh == 1:
            key = next(reversed(dirty))
            if dirty[key] is None:
                self._dead.add(key)
            else:
                order.add(key)
        elif fresh:
            keys = list(islice(reversed(dirty), fresh))
            order.update(key for key in keys if dirty[key] is not None)
            self._dead.update(key for key in keys if dirty[key] is None)
        return order

    def _written(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[bytes]:
        """Yield the keys within bounds that the epoch wrote.

        It reads in chunks, because most scans are short and the order may change meanwhile. Deleted keys leave the order, so
        that taking entries off one end does not scan all earlier ones again.
        """
        dirty, size, inclusive = self.dirty, _FIRST_CHUNK, (True, False)
        while True:
            order = self._sorted()
            chunk = list(islice(order.irange(lower, upper, inclusive, reverse), size))
            for key in chunk:
                if dirty[key] is None:
                    order.discard(key)
                    self._dead.add(key)
            yield from chunk
            if len(chunk) < size:
                return
            if reverse:
                upper = chunk[-1]
            else:
                lower, inclusive = chunk[-1], (False, False)
            size = min(size * 4, _LARGEST_CHUNK)

    def _merge(
        self, lower: bytes | None, stored: Iterator[tuple[bytes, bytes]], written: Iterator[bytes], reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        dirty = self.dirty
        deleted, last = 0, b""
        mine = next(written, None)
        for key, value in stored:
            while mine is not None and (mine > key if reverse else mine < key):
                own = dirty[mine]
                if own is not None:
                    yield mine, own
                mine = next(written, None)
            if mine == key:
                mine = next(written, None)
            own = dirty.get(key, value)
            if own is None:
                deleted, last = deleted + (deleted >= 0), key
                continue
            if deleted > _WORTH_SKIPPING and not reverse:
                self._front[lower] = after(last)
            deleted = -1  # the following ones are not at the start
            yield key, own
        if deleted > _WORTH_SKIPPING and not reverse:
            self._front[lower] = after(last)
        while mine is not None:
            own = dirty[mine]
            if own is not None:
                yield mine, own
            mine = next(written, None)


class FrozenSpace(Space):
    """A read-only space: the old values of the uncommitted epoch are on top of it."""

    __slots__ = ()

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; not remembered, since a view may be read for a long time."""
        dirty = self.dirty
        return dirty[key] if key in dirty else self._engine.get(self.name, self.prefix + key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of several keys; not remembered."""
        return [self.get(key) for key in keys]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Raise: the space is read-only."""
        raise StateError(f"{self.name!r} is a view of a committed epoch and cannot be written.")

    def expire(self, key: bytes, value: bytes) -> None:
        """Raise: the space is read-only."""
        raise StateError(f"{self.name!r} is a view of a committed epoch and cannot be written.")
