"""The engine without files: for the test driver, and the model that the others are tested against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sortedcontainers import SortedDict

if TYPE_CHECKING:
    from penstock.state.engines.engine import Expected, SpaceBatch


class MemoryEngine:
    """A sorted dictionary per space."""

    def __init__(self) -> None:
        self._spaces: dict[str, SortedDict] = {}

    def get(self, space: str, key: bytes) -> bytes | None:
        """See `Engine.get`."""
        entries = self._spaces.get(space)
        value: bytes | None = None if entries is None else entries.get(key)
        return value

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Engine.get_many`."""
        return [self.get(space, key) for key in keys]

    def scan(self, space: str, lower: bytes | None, upper: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """See `Engine.scan`."""
        entries = self._spaces.get(space)
        if entries is None or (upper is not None and (lower or b"") >= upper):
            return iter(())
        return ((key, entries[key]) for key in entries.irange(lower, upper, (True, False), reverse))

    def count(self, space: str) -> int:
        """See `Engine.count`."""
        return len(self._spaces.get(space, ()))

    def size(self, space: str) -> int:
        """See `Engine.size`."""
        return sum(len(key) + len(value) for key, value in self._spaces.get(space, {}).items())

    def write(self, batch: Sequence[SpaceBatch], expected: Expected | None = None) -> None:
        """See `Engine.write`."""
        if expected is not None:
            expected.check(self.get(expected.space, expected.key))
        for name, keys, values in batch:
            entries = self._spaces.setdefault(name, SortedDict())
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    entries.pop(key, None)
                else:
                    entries[key] = value

    def snapshot(self) -> MemoryEngine:
        """See `Engine.snapshot`; a copy."""
        copy = MemoryEngine()
        copy._spaces = {name: SortedDict(entries) for name, entries in self._spaces.items()}
        return copy

    def refresh(self) -> None:
        """See `Engine.refresh`."""

    def close(self) -> None:
        """See `Engine.close`; memory is kept, so that a test can open the lane again."""
