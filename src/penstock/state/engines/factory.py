"""Which engine a lane's state lives in, as a picklable value: it is opened where the lane runs."""

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
    """The engines there are."""

    LMDB = "lmdb"
    ROCKSDB = "rocksdb"
    MEMORY = "memory"


@dataclass(frozen=True)
class EngineFactory:
    """An engine to be opened: its kind and, unless it is memory, the directory that is all its own."""

    kind: EngineKind
    directory: str | None = None

    def open(self, read_only: bool = False) -> Engine:
        """The engine, opened in this process; an engine in memory is a new one each time."""
        if self.kind is EngineKind.MEMORY:
            return MemoryEngine()
        if self.directory is None:
            raise StateError(f"{self.kind.value} needs a directory")
        if self.kind is EngineKind.LMDB:
            return LmdbEngine(self.directory, read_only)
        return RocksDbEngine(self.directory, read_only)
