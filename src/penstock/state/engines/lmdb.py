"""LMDB: the default engine. One environment per lane, one database per space, one write transaction per batch.

LMDB accepts keys of 1 to 511 bytes. The few others of a space ("odd" keys) are in a second database: under their first bytes,
which keep them roughly in order, and a digest, which makes them unique, with the full key stored beside the value. A scan
sorts those that share their first bytes and merges both databases.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import lmdb

from penstock.errors import StateError
from penstock.state.bounds import after_prefix

if TYPE_CHECKING:
    from penstock.state.engines.engine import Expected, SpaceBatch

_LONGEST = 511
_PREFIX = 480
_DIGEST = 16
_EMPTY = b"\x00"
_ODD = "/odd"
_SMALLEST_MAP = 1 << 28
_SMALLEST_SHARED_MAP = 1 << 36
_DATABASES = 1024
DATA_FILE = "data.mdb"
"""The file of an environment that has its content; LMDB makes the other one, with its locks, when it opens it."""

_size = Struct(">I")
_key_of = itemgetter(0)

Item = tuple[bytes, bytes]


class LmdbReads(ABC):
    """Reads of an environment within one transaction."""

    _databases: dict[str, Any]
    _reading: lmdb.Transaction[bytes] | None

    @abstractmethod
    def _read(self) -> lmdb.Transaction[bytes]:
        """Return the transaction; begin it if there is none."""

    def get(self, space: str, key: bytes) -> bytes | None:
        """See `Engine.get`."""
        if not 0 < len(key) <= _LONGEST:
            odd = self._databases.get(space + _ODD)
            found = None if odd is None else self._read().get(_odd_name(key), db=odd)
            return None if found is None else _open_odd(found)[1]
        database = self._databases.get(space)
        if database is None:
            return None
        return (self._reading or self._read()).get(key, None, database)

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Engine.get_many`."""
        database = self._databases.get(space)
        if database is None or not all(keys) or max(map(len, keys), default=0) > _LONGEST:
            return [self.get(space, key) for key in keys]
        get = self._read().get
        return [get(key, None, database) for key in keys]

    def scan(self, space: str, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[Item]:
        """See `Engine.scan`."""
        database, odd = self._databases.get(space), self._databases.get(space + _ODD)
        if upper is not None and (lower or b"") >= upper:
            return iter(())
        plain: Iterator[Item] = iter(())
        if database is not None:
            cursor = self._read().cursor(db=database)
            plain = _backward(cursor, lower, upper) if reverse else _forward(cursor, lower, upper)
        if odd is None or not self._read().stat(odd)["entries"]:
            return plain
        return merge(plain, _scan_odd(self._read().cursor(db=odd), lower, upper, reverse), key=_key_of, reverse=reverse)

    def count(self, space: str) -> int:
        """See `Engine.count`."""
        names = (space, space + _ODD)
        return sum(self._read().stat(self._databases[name])["entries"] for name in names if name in self._databases)

    def size(self, space: str) -> int:
        """See `Engine.size`: whole pages."""
        names = (space, space + _ODD)
        stats = [self._read().stat(self._databases[name]) for name in names if name in self._databases]
        return sum(stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) for stat in stats)


class LmdbEngine(LmdbReads):
    """Ordered byte maps in an LMDB environment. Open it after a fork, and not twice in one process.

    With room to grow it reserves much more address space than it needs: an open snapshot pins the map, which then cannot grow.
    """

    def __init__(self, directory: str, read_only: bool = False, room_to_grow: bool = False) -> None:
        path = Path(directory)
        if not read_only:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = path / DATA_FILE
        stored = data.stat().st_size if data.exists() else 0
        self._env = lmdb.open(
            os.fspath(path),
            map_size=max(_SMALLEST_SHARED_MAP, 8 * stored) if room_to_grow else max(_SMALLEST_MAP, 2 * stored),
            max_dbs=_DATABASES,
            readonly=read_only,
            mode=0o600,
            sync=False,
            metasync=False,
            max_spare_txns=1,
        )
        if not read_only:
            self._env.reader_check()  # slots of killed readers would keep old pages alive
        self._databases: dict[str, Any] = {}
        self._reading: lmdb.Transaction[bytes] | None = None
        self._snapshots: WeakSet[LmdbSnapshot] = WeakSet()
        self._open_databases()

    def write(self, batch: Sequence[SpaceBatch], expected: Expected | None = None) -> None:
        """See `Engine.write`."""
        self._end_reading()
        while not self._try_write(batch, expected):
            self._resize(2 * self._env.info()["map_size"])

    def refresh(self) -> None:
        """See `Engine.refresh`."""
        self._end_reading()
        self._open_databases()

    def close(self) -> None:
        """See `Engine.close`."""
        self._end_reading()
        self._env.close()

    def snapshot(self) -> LmdbSnapshot:
        """See `Engine.snapshot`. Takes a microsecond, even while another thread writes."""
        reading = self._begin()
        names = [name.decode() for name in self._env.dbs(reading)]
        if not self._databases.keys() >= set(names):
            reading.abort()  # a transaction does not see databases opened after it began
            self._open_databases()
            reading = self._begin()
            names = [name.decode() for name in self._env.dbs(reading)]
        known = {name: self._databases[name] for name in names if name in self._databases}
        taken = LmdbSnapshot(self._env, reading, known)
        self._snapshots.add(taken)
        return taken

    def _begin(self, write: bool = False) -> lmdb.Transaction[bytes]:
        try:
            return self._env.begin(write=write)
        except lmdb.MapResizedError:
            self._resize(0)  # another process has enlarged the map: adopt its size
            return self._env.begin(write=write)

    def _resize(self, map_size: int) -> None:
        if any(not snapshot.is_closed for snapshot in self._snapshots):
            raise StateError("The store has outgrown its map while a snapshot of it was open. Restart the application.")
        self._env.set_mapsize(map_size)

    def _read(self) -> lmdb.Transaction[bytes]:
        if self._reading is None:
            self._reading = self._begin()
        return self._reading

    def _end_reading(self) -> None:
        if self._reading is not None:
            self._reading.abort()
            self._reading = None

    def _open_databases(self) -> None:
        with self._begin() as txn:
            names = self._env.dbs(txn)
        for name in names:
            if name.decode() not in self._databases:
                self._databases[name.decode()] = self._env.open_db(name, create=False)

    def _try_write(self, batch: Sequence[SpaceBatch], expected: Expected | None) -> bool:
        """Write the batch; False if the map is too small for it."""
        known = set(self._databases)
        written = False
        try:
            with self._begin(write=True) as txn:
                if expected is not None:
                    expected.check(txn.get(expected.key, db=self._database(txn, expected.space)))
                for name, keys, values in batch:
                    self._write_space(txn, name, keys, values)
            written = True
        except lmdb.MapFullError:
            pass
        finally:
            if not written:  # a database created in an aborted transaction does not exist
                for name in self._databases.keys() - known:
                    del self._databases[name]
        return written

    def _database(self, txn: lmdb.Transaction[bytes], name: str) -> Any:
        if name not in self._databases:
            self._databases[name] = self._env.open_db(name.encode(), txn=txn)
        return self._databases[name]

    def _write_space(self, txn: lmdb.Transaction[bytes], name: str, keys: list[bytes], values: list[bytes | None]) -> None:
        if keys and (not keys[0] or max(map(len, keys)) > _LONGEST):
            keys, values = self._write_odd(txn, name, keys, values)
        cursor = txn.cursor(db=self._database(txn, name))
        if None not in values:
            cursor.putmulti(cast("Iterator[Item]", zip(keys, values, strict=True)))
            return
        if any(value is not None for value in values):
            cursor.putmulti((key, value) for key, value in zip(keys, values, strict=True) if value is not None)
            keys = [key for key, value in zip(keys, values, strict=True) if value is None]
        find, delete = cursor.set_key, cursor.delete
        for key in keys:
            if find(key):
                delete()

    def _write_odd(
        self, txn: lmdb.Transaction[bytes], name: str, keys: list[bytes], values: list[bytes | None]
    ) -> tuple[list[bytes], list[bytes | None]]:
        """Write the keys that LMDB does not accept; return the others."""
        odd = self._database(txn, name + _ODD)
        plain_keys: list[bytes] = []
        plain_values: list[bytes | None] = []
        for key, value in zip(keys, values, strict=True):
            if 0 < len(key) <= _LONGEST:
                plain_keys.append(key)
                plain_values.append(value)
            elif value is None:
                txn.delete(_odd_name(key), db=odd)
            else:
                txn.put(_odd_name(key), _size.pack(len(key)) + key + value, db=odd)
        return plain_keys, plain_values


class LmdbSnapshot(LmdbReads):
    """An environment at one point in time. The caller that took it closes it; only one thread may read it at a time."""

    def __init__(self, env: lmdb.Environment, reading: lmdb.Transaction[bytes], databases: dict[str, Any]) -> None:
        self._env = env
        self._reading = reading
        self._databases = databases

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""
        return self._reading is None

    def write(self, batch: Sequence[SpaceBatch], expected: Expected | None = None) -> None:
        """Raise: a snapshot is read-only."""
        raise StateError("A snapshot is read-only.")

    def refresh(self) -> None:
        """Do nothing: a snapshot does not change."""

    def snapshot(self) -> LmdbSnapshot:
        """Return itself: a snapshot does not change."""
        return self

    def copy_to(self, file: int) -> None:
        """Write a compact copy, which is an environment of its own, to an open file."""
        self._env.copyfd(file, compact=True, txn=self._read())

    def close(self) -> None:
        """Release its pages."""
        if self._reading is not None:
            self._reading.abort()
            self._reading = None

    def _read(self) -> lmdb.Transaction[bytes]:
        if self._reading is None:
            raise StateError("The snapshot is closed.")
        return self._reading


def _odd_name(key: bytes) -> bytes:
    """Return the name of an odd key: the empty one sorts first, a long one is its first bytes and a digest."""
    return key[:_PREFIX] + blake2b(key, digest_size=_DIGEST).digest() if key else _EMPTY


def _open_odd(stored: bytes) -> Item:
    """Return the full key and the value."""
    end = _size.size + _size.unpack_from(stored)[0]
    return stored[_size.size : end], stored[end:]


def _forward(cursor: lmdb.Cursor[bytes], lower: bytes | None, upper: bytes | None) -> Iterator[Item]:
    if not (cursor.set_range(lower[:_LONGEST]) if lower else cursor.first()):
        return
    if lower is not None and cursor.key() < lower and not cursor.next():
        return
    if upper is None:
        yield from cursor.iternext()
        return
    for item in cursor.iternext():
        if item[0] >= upper:
            return
        yield item


def _backward(cursor: lmdb.Cursor[bytes], lower: bytes | None, upper: bytes | None) -> Iterator[Item]:
    if not (upper is not None and cursor.set_range(upper[:_LONGEST])) and not cursor.last():
        return
    if upper is not None and cursor.key() >= upper and not cursor.prev():
        return
    if lower is None:
        yield from cursor.iterprev()
        return
    for item in cursor.iterprev():
        if item[0] < lower:
            return
        yield item


def _scan_odd(cursor: lmdb.Cursor[bytes], lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[Item]:
    """Yield odd keys within bounds: each group that shares its first bytes is sorted by the full keys."""
    first = (lower or b"")[:_PREFIX]
    last = None if upper is None else upper[:_PREFIX]
    if reverse:
        end = None if last is None else after_prefix(last)
        stored = _backward(cursor, first, end)
    else:
        stored = _forward(cursor, first, None)
    for group, items in groupby(stored, _group_of):
        if not reverse and last is not None and group > last:
            return
        found = (_open_odd(value) for _, value in items)
        within = (item for item in found if (lower is None or item[0] >= lower) and (upper is None or item[0] < upper))
        yield from sorted(within, key=_key_of, reverse=reverse)


def _group_of(item: Item) -> bytes:
    return b"" if item[0] == _EMPTY else item[0][:_PREFIX]
