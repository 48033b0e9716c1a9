"""The interface between a shard and its stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import StateError
from penstock.state.overlay import Register, Space

if TYPE_CHECKING:
    from penstock.state.overlay import Log
    from penstock.state.specs import StoreSpec


class RegisterSource(Protocol):
    """Provides registers."""

    def register(self, name: str, initial: int) -> Register:
        """Return the register of that name."""


class StateOfStores(Protocol):
    """Provides typed stores to a host of operators: the state of one shard, or of all shards together."""

    @property
    def registers(self) -> RegisterSource:
        """The registers."""

    def store(self, spec: StoreSpec) -> Any:
        """Return the typed store of that specification."""


class Shard(Protocol):
    """A shard as its stores see it."""

    @property
    def registers(self) -> RegisterSource:
        """The shard's registers."""

    def space(self, name: str, log: Log | None = None, log_all: bool = False) -> Space:
        """Return the byte map of that name."""


class StateStore(Protocol):
    """A store as its shard sees it."""

    def before_commit(self) -> None:
        """Write values that are held as objects, and remove some expired entries."""

    def discard(self) -> None:
        """Discard values that are held as objects."""

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """Apply changelog rows; idempotent."""


def null_key(store: str) -> StateError:
    """Return the error of a null key."""
    return StateError(f"Store {store!r} cannot have a null key (None). Give the record a key first (select_key).")


def plain_log(keys: list[bytes], values: list[bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
    """Return the rows unchanged: the changelog of a store whose rows are logged as they are stored."""
    return keys, values
