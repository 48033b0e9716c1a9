"""RocksDB: the engine for state larger than memory. One database per lane, one column family per space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rocksdict import AccessType, BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch

if TYPE_CHECKING:
    from penstock.state.engines.engine import Expected, SpaceBatch

_DEFAULT = "default"
_ATTEMPTS = 10


class RocksDbEngine:
    """Ordered byte maps in a RocksDB database. The write-ahead log makes a batch survive a killed process."""

    def __init__(self, directory: str, read_only: bool = False) -> None:
        self._path = directory
        self._read_only = read_only
        self._closed = False
        self._options = _options()
        if not read_only:
            Path(directory).parent.mkdir(parents=True, exist_ok=True)
        self._database, self._families = self._open_to_read() if read_only else self._open()

    def get(self, space: str, key: bytes) -> bytes | None:
        """See `Engine.get`."""
        family = self._families.get(space)
        value: bytes | None = None if family is None else family.get(key)
        return value

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Engine.get_many`."""
        family = self._families.get(space)
        return [None] * len(keys) if family is None else cast("list[bytes | None]", family.get(list(keys)))

    def scan(self, space: str, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """See `Engine.scan`."""
        family = self._families.get(space)
        if family is None or (upper is not None and (lower or b"") >= upper):
            return iter(())
        return _backward(family, lower, upper) if reverse else _forward(family, lower, upper)

    def count(self, space: str) -> int:
        """See `Engine.count`; RocksDB estimates."""
        family = self._families.get(space)
        return 0 if family is None else family.property_int_value("rocksdb.estimate-num-keys") or 0

    def size(self, space: str) -> int:
        """See `Engine.size`; RocksDB estimates."""
        family = self._families.get(space)
        return 0 if family is None else family.property_int_value("rocksdb.estimate-live-data-size") or 0

    def write(self, batch: Sequence[SpaceBatch], expected: Expected | None = None) -> None:
        """See `Engine.write`; only one process can have the database open for writing."""
        if expected is not None:
            expected.check(self.get(expected.space, expected.key))
        writes = WriteBatch(raw_mode=True)
        for name, keys, values in batch:
            if name not in self._families:
                self._families[name] = self._database.create_column_family(name, self._options)
            family = self._database.get_column_family_handle(name)
            put, delete = writes.put, writes.delete
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    delete(key, family)
                else:
                    put(key, value, family)
        self._database.write(writes)

    def snapshot(self) -> RocksDbEngine:
        """See `Engine.snapshot`; takes some milliseconds."""
        return RocksDbEngine(self._path, read_only=True)

    def refresh(self) -> None:
        """See `Engine.refresh`; the writer itself is always up to date."""
        if self._read_only:
            self.close()
            self._database, self._families = self._open_to_read()
            self._closed = False

    def close(self) -> None:
        """See `Engine.close`."""
        if not self._closed:
            self._closed = True
            for family in self._families.values():
                family.close()
            self._database.close()

    def _open_to_read(self) -> tuple[Rdict, dict[str, Rdict]]:
        """Open as a reader; retry, because the writer may replace a file after the reader has found its name."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._open()
            except Exception as error:
                if "No such file" not in str(error):
                    raise
        return self._open()

    def _open(self) -> tuple[Rdict, dict[str, Rdict]]:
        known = Rdict.list_cf(self._path, self._options) if (Path(self._path) / "CURRENT").exists() else []
        access = AccessType.read_only(False) if self._read_only else AccessType.read_write()
        database = Rdict(self._path, self._options, dict.fromkeys(known, self._options), access)
        return database, {name: database.get_column_family(name) for name in known if name != _DEFAULT}


def _forward(family: Rdict, lower: bytes | None, upper: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    for key, value in cast("Iterator[tuple[bytes, bytes]]", family.items(from_key=lower)):
        if upper is not None and key >= upper:
            return
        yield key, value


def _backward(family: Rdict, lower: bytes | None, upper: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    for key, value in cast("Iterator[tuple[bytes, bytes]]", family.items(backwards=True, from_key=upper)):
        if lower is not None and key < lower:
            return
        if key != upper:
            yield key, value


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(16 * 1024 * 1024)
    options.set_compression_type(DBCompressionType.none())
    options.set_keep_log_file_num(1)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, True)
    table.set_block_cache(Cache(50 * 1024 * 1024))
    options.set_block_based_table_factory(table)
    return options
