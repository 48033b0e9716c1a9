"""What a shard asks of every store, and what every store asks of its shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.state.overlay import Register, Space

if TYPE_CHECKING:
    from penstock.state.overlay import Log
    from penstock.state.specs import StoreSpec


class RegisterSource(Protocol):
    """Where registers come from."""

    def register(self, name: str, initial: int) -> Register:
        """The register of that name."""


class StateOfStores(Protocol):
    """Where those who run operators find typed stores: a shard's state, or that of all shards together."""

    @property
    def registers(self) -> RegisterSource:
        """Its integers."""

    def store(self, spec: StoreSpec) -> Any:
        """The typed store of that specification."""


class Shard(Protocol):
    """The part of a shard that a store sees."""

    @property
    def registers(self) -> RegisterSource:
        """The shard's integers."""

    def space(self, name: str, log: Log | None = None, log_all: bool = False) -> Space:
        """A byte map to keep entries in."""


class Store(Protocol):
    """The part of a store that the shard sees."""

    def before_commit(self) -> None:
        """Write out what is only held as objects, and let go of some of what has expired."""

    def discard(self) -> None:
        """Forget what is only held as objects."""

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """Apply changelog rows, once or again."""


def plain_log(keys: list[bytes], values: list[bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
    """The changelog of a store whose rows are logged as they are kept."""
    return keys, values
