"""Shared stores: their interface for processors, and the writes that are applied in the shard of their key.

A write is a value: it is sent to the shard that owns its key and is applied there, to the key's current value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.errors import SerializationError, StateError, TopologyError
from penstock.serdes import Serde
from penstock.state.store import null_key

if TYPE_CHECKING:
    from penstock.state.specs import StoreSpec

K = TypeVar("K")
V = TypeVar("V")

_head = Struct(">BHB")


class Act(IntEnum):
    """What a write does to its key."""

    PUT = 0
    PUT_IF_ABSENT = 1
    MERGE = 2
    COMPUTE = 3


class Write(NamedTuple):
    """A write to one key; `operation` is the number of the function that a computation calls."""

    act: Act
    argument: Any
    operation: int = 0

    def done(self, spec: StoreSpec, current: Any) -> Any:
        """Return the key's new value, None if it is deleted."""
        act, argument, operation = self
        if act is Act.PUT:
            return argument
        if act is Act.PUT_IF_ABSENT:
            return argument if current is None else current
        sharing = spec.sharing
        assert sharing is not None
        if act is Act.COMPUTE:
            return sharing.operations[operation](current, argument)
        assert sharing.merge is not None
        return argument if current is None else sharing.merge(current, argument)


class WriteSerde(Serde[Write]):
    """The serde of writes: the act, the number of the operation, whether there is an argument, and the argument."""

    def __init__(self, value: Serde[Any], argument: Serde[Any]) -> None:
        self.value = value
        self.argument = argument

    def serialize(self, write: Write, /) -> bytes:
        """See `Serde`."""
        act, argument, operation = write
        if argument is None:
            return _head.pack(act, operation, 0)
        serde = self.argument if act is Act.COMPUTE else self.value
        return _head.pack(act, operation, 1) + serde.serialize(argument)

    def deserialize(self, data: bytes, /) -> Write:
        """See `Serde`."""
        try:
            code, operation, has_argument = _head.unpack_from(data)
            act = Act(code)
        except Exception as error:
            raise SerializationError(f"Invalid write to a shared store: {error}") from error
        serde = self.argument if act is Act.COMPUTE else self.value
        return Write(act, serde.deserialize(data[_head.size :]) if has_argument else None, operation)


def write_serde(spec: StoreSpec) -> WriteSerde:
    """Return the serde of writes to a store."""
    _, value = spec.serdes
    argument = None if spec.sharing is None else spec.sharing.argument
    return WriteSerde(value, value if argument is None else argument)


class SharedKeyValueStore(ABC, Generic[K, V]):
    """A key-value store of which a processor reads and writes any key, whichever shard owns it.

    In `process` and `process_values`, a key of the processor's own shard has its current value, any other the one at the end of
    the epoch before; the key's shard applies a write later in the same epoch, so the next line does not see it yet. In
    `process_atomically` all reads and writes are immediate.
    """

    def __init__(self, spec: StoreSpec, user: str) -> None:
        self.name: str = spec.name
        self._spec = spec
        self._user = user
        self._serialize_key = spec.serdes[0].serialize

    def follow(self, other: SharedKeyValueStore[K, V]) -> None:
        """Be the store that `other` is: the user's code has this one since an earlier epoch."""
        self.__dict__.update(other.__dict__)

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of a key, None if it has none."""

    @abstractmethod
    def _do(self, key: K, write: Write) -> None:
        """Apply a write, or send it to the key's shard."""

    def put(self, key: K, value: V | None) -> None:
        """Set a key's value; None deletes it."""
        self._write(key, Write(Act.PUT, value))

    def delete(self, key: K) -> None:
        """Delete a key."""
        self._write(key, Write(Act.PUT, None))

    def put_if_absent(self, key: K, value: V) -> None:
        """Set a key's value, unless it has one when the write is applied."""
        self._write(key, Write(Act.PUT_IF_ABSENT, value))

    def merge(self, key: K, value: V) -> None:
        """Set a key's value to `merge(current, value)` by the store's merge function; to `value` if it has none."""
        if value is None:
            raise StateError(f"{self._user}: merge needs a value, not None. Use delete(key) to delete.")
        self._write(key, Write(Act.MERGE, value))

    def compute(self, key: K, operation: Callable[[V | None, Any], V | None], argument: Any = None) -> None:
        """Set a key's value to `operation(current, argument)`; None deletes it. The function must be one of the store's."""
        self._write(key, Write(Act.COMPUTE, argument, self._number_of(operation)))

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def _key_bytes(self, key: K) -> bytes:
        if key is None:
            raise null_key(self.name)
        return self._serialize_key(key)

    def _write(self, key: K, write: Write) -> None:
        spec = self._spec
        if not spec.takes_writes:
            raise TopologyError(
                f"{self._user} writes to store {self.name!r}, which belongs to a table: nodes below it would miss the write. "
                f"Write to the table's topic, or use a shared_store(...)."
            )
        if write.act is Act.MERGE and spec.sharing is not None and spec.sharing.merge is None:
            raise TopologyError(f"{self._user}: store {self.name!r} has no merge function. Pass one to shared_store(merge=...).")
        self._do(key, write)

    def _number_of(self, operation: Callable[[V | None, Any], V | None]) -> int:
        operations = () if self._spec.sharing is None else self._spec.sharing.operations
        if operation not in operations:
            declared = ", ".join(map(_name, operations)) or "none"
            raise TopologyError(
                f"{self._user} computes with {_name(operation)}, which is not an operation of store {self.name!r}. "
                f"Declare it with shared_store(operations=[...]). Declared operations: {declared}."
            )
        return operations.index(operation)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
