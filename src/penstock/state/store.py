"""The interface between a shard and its stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.errors import StateError
from penstock.state.overlay import Register, Space

if TYPE_CHECKING:
    from penstock.state.overlay import Log
    from penstock.state.specs import StoreSpec

K = TypeVar("K")
V = TypeVar("V")


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


class StateStore:
    """A store as its shard sees it. Most hold no values as objects."""

    def before_commit(self) -> None:
        """Write values that are held as objects, and remove some expired entries."""

    def discard(self) -> None:
        """Discard values that are held as objects."""

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """Apply changelog rows; idempotent."""
        raise NotImplementedError


class HistoryStore(StateStore, Generic[K, V]):
    """A store that keeps several values of a key."""

    def __init__(self, spec: StoreSpec) -> None:
        key, value = spec.serdes
        self.name: str = spec.name
        self._serialize_key = key.serialize
        self._deserialize_key = key.deserialize
        self._serialize = value.serialize
        self._deserialize = value.deserialize

    def _key_bytes(self, key: K) -> bytes:
        if key is None:
            raise null_key(self.name)
        return self._serialize_key(key)


def null_key(store: str) -> StateError:
    """Return the error of a null key."""
    return StateError(f"Store {store!r} cannot have a null key (None). Give the record a key first (select_key).")


def plain_log(keys: list[bytes], values: list[bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
    """Return the rows unchanged: the changelog of a store whose rows are logged as they are stored."""
    return keys, values
