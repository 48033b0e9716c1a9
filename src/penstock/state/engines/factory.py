"""The engine of a lane's state, as a picklable value: it is opened where the lane runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from penstock.errors import StateError
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.engines.rocksdb import RocksDbEngine

if TYPE_CHECKING:
    from penstock.state.engines.engine import Engine


class EngineKind(Enum):
    """The available engines."""

    LMDB = "lmdb"
    ROCKSDB = "rocksdb"
    MEMORY = "memory"


@dataclass(frozen=True)
class EngineFactory:
    """An engine to open: its kind and, unless it is memory, its own directory."""

    kind: EngineKind
    directory: str | None = None

    def open(self, read_only: bool = False, room_to_grow: bool = False) -> Engine:
        """Open the engine in this process; an engine in memory is a new one each time.

        With `room_to_grow` it may be written while snapshots are open.
        """
        if self.kind is EngineKind.MEMORY:
            return MemoryEngine()
        if self.directory is None:
            raise StateError(f"The {self.kind.value} engine needs a directory.")
        if self.kind is EngineKind.LMDB:
            return LmdbEngine(self.directory, read_only, room_to_grow)
        return RocksDbEngine(self.directory, read_only)


class Snapshots:
    """Snapshots of an engine that another process writes; it is opened when the first snapshot is taken."""

    def __init__(self, factory: EngineFactory) -> None:
        self._factory = factory
        self._engine: Engine | None = None
        self.are_cheap: bool = factory.kind is EngineKind.LMDB
        """Whether taking one costs microseconds, not milliseconds."""

    def take(self) -> Engine:
        """Take a snapshot of the current content; close it before calling `close`."""
        if not self.are_cheap:
            return self._factory.open(read_only=True)
        if self._engine is None:
            self._engine = self._factory.open(read_only=True, room_to_grow=True)
        return self._engine.snapshot()

    def close(self) -> None:
        """Close the files."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
