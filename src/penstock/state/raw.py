"""A plain byte map of a shard, for operators with their own layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.state.bounds import after_prefix
from penstock.state.store import StateStore, plain_log

if TYPE_CHECKING:
    from penstock.state.overlay import Register
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard

UNKNOWN = -1
"""The value of a measure that was not taken yet."""


class OrderedSpace(StateStore):
    """Byte values by byte keys, in byte order; committed, rolled back and logged with the shard's other stores."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        self.name: str = spec.name
        self._space = shard.space(spec.name, plain_log if spec.logged else None)
        self.get: Callable[[bytes], bytes | None] = self._space.get
        """The value of a key, None if it has none."""
        self.put: Callable[[bytes, bytes | None], None] = self._space.put
        """Set a key's value; None deletes it."""
        self._registers = shard.registers

    def measures(self) -> tuple[Register, Register]:
        """Return the registers for an operator's count of records and bytes; `UNKNOWN` until it has counted once."""
        register = self._registers.register
        return register(f"{self.name}/held_records", UNKNOWN), register(f"{self.name}/held_bytes", UNKNOWN)

    def delete(self, key: bytes) -> None:
        """Delete a key."""
        self.put(key, None)

    def scan(
        self, lower: bytes | None = None, upper: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from `lower` (inclusive) to `upper` (exclusive) with their values, in byte order or backwards."""
        return self._space.scan(lower, upper, reverse)

    def prefix_scan(self, prefix: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys that start with `prefix`, with their values."""
        return self._space.scan(prefix, after_prefix(prefix), reverse)

    def approximate_num_entries(self) -> int:
        """Return the approximate number of keys."""
        return self._space.count()

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """See `StateStore`."""
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)
        for measure in self.measures():
            measure.value = UNKNOWN  # the changelog has no registers: count again
