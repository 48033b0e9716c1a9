"""Where a test's lane is stored, and specifications for its stores."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.serdes import Bytes, Int64, Json, String
from penstock.state import (
    REGISTERS,
    Engine,
    EngineFactory,
    EngineKind,
    LaneState,
    StoreChanges,
    StoreKind,
    StoreSpec,
    last_registers,
)

MINUTE = 60_000


class Home:
    """One lane's directory; an engine in memory lives as long as its home."""

    def __init__(self, kind: EngineKind, directory: Path) -> None:
        self.kind = kind
        self.factory = EngineFactory(kind, None if kind is EngineKind.MEMORY else str(directory / "lane"))
        self._engine: Engine | None = None

    def engine(self) -> Engine:
        """Close the open engine, if any, and open it again."""
        if self.kind is not EngineKind.MEMORY or self._engine is None:
            self.leave()
            self._engine = self.factory.open()
        return self._engine

    def lane(self) -> LaneState:
        return LaneState(self.engine())

    def leave(self) -> None:
        if self._engine is not None:
            self._engine.close()
            if self.kind is not EngineKind.MEMORY:
                self._engine = None


def raw(name: str = "raw", **options: Any) -> StoreSpec:
    return StoreSpec(name, StoreKind.RAW, **options)


def key_value(name: str = "kv", **options: Any) -> StoreSpec:
    return StoreSpec(name, StoreKind.KEY_VALUE, key=String(), value=String(), **options)


def timestamped(name: str = "table", **options: Any) -> StoreSpec:
    return StoreSpec(name, StoreKind.TIMESTAMPED, **{"key": String(), "value": Json(), **options})


def window(name: str = "windows", **options: Any) -> StoreSpec:
    defaults: dict[str, Any] = {"key": String(), "value": String(), "retention_ms": 2 * MINUTE, "window_size_ms": 10}
    return StoreSpec(name, StoreKind.WINDOW, **{**defaults, **options})


def timestamped_window(name: str = "aggregates", **options: Any) -> StoreSpec:
    defaults: dict[str, Any] = {"key": String(), "value": Int64(), "retention_ms": 2 * MINUTE, "window_size_ms": 10}
    return StoreSpec(name, StoreKind.TIMESTAMPED_WINDOW, **{**defaults, **options})


def session(name: str = "sessions", **options: Any) -> StoreSpec:
    defaults: dict[str, Any] = {"key": String(), "value": String(), "retention_ms": 2 * MINUTE}
    return StoreSpec(name, StoreKind.SESSION, **{**defaults, **options})


def versioned(name: str = "versions", **options: Any) -> StoreSpec:
    defaults: dict[str, Any] = {"key": Bytes(), "value": String(), "retention_ms": 30_000}
    return StoreSpec(name, StoreKind.VERSIONED, **{**defaults, **options})


def of_stores(changes: Iterable[StoreChanges]) -> list[StoreChanges]:
    """Changelog rows without those of the registers."""
    return [change for change in changes if change.store != REGISTERS]


def logged(changes: Iterable[StoreChanges]) -> dict[str, dict[bytes, bytes | None]]:
    """Changelog rows of one shard's stores, by store and key."""
    return {change.store: dict(zip(change.keys, change.values, strict=True)) for change in of_stores(changes)}


def logged_registers(changes: Iterable[StoreChanges]) -> dict[int, dict[str, int]]:
    """The changelog's registers, by shard."""
    found = {change.shard: last_registers(change.keys, change.values) for change in changes if change.store == REGISTERS}
    return {shard: registers for shard, registers in found.items() if registers is not None}
