"""Key-value stores: reads by key, range and prefix in byte order of the keys, and the plain store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.state.bounds import after, after_prefix
from penstock.state.store import StateStore, null_key, plain_log

if TYPE_CHECKING:
    from penstock.serdes import Serde
    from penstock.state.overlay import Space
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_REQUIRED = object()


class KeyValueReads(ABC, Generic[K, V]):
    """Reads of a key-value store, for any format of values. Ranges are inclusive; None leaves an end open."""

    name: str

    def __init__(self, key: Serde[K], decode: Callable[[bytes], V]) -> None:
        self._serialize_key = key.serialize
        self._deserialize_key = key.deserialize
        self._decode = decode

    @abstractmethod
    def _raw_get(self, key: bytes) -> bytes | None:
        """Return the bytes of a visible key's value."""

    @abstractmethod
    def _raw_scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield the bytes of all visible keys within bounds, the upper one exclusive, and of their values."""

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if it has none."""
        raw = self._raw_get(self._key_bytes(key))
        return None if raw is None else self._decode(raw)

    def range(self, from_key: K | None = None, to_key: K | None = None) -> Iterator[tuple[K, V]]:
        """Yield keys and values from one key to another, both inclusive, in byte order of the keys."""
        return self._between(from_key, to_key, reverse=False)

    def reverse_range(self, from_key: K | None = None, to_key: K | None = None) -> Iterator[tuple[K, V]]:
        """Like `range`, from the last to the first."""
        return self._between(from_key, to_key, reverse=True)

    def all(self) -> Iterator[tuple[K, V]]:
        """Yield all keys and values, in byte order of the keys."""
        return self._typed(self._raw_scan(None, None, False))

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """Yield all keys and values, from the last to the first."""
        return self._typed(self._raw_scan(None, None, True))

    def prefix_scan(self, prefix: Any, serialize: Callable[[Any], bytes] | None = None) -> Iterator[tuple[K, V]]:
        """Yield all entries whose key starts with `prefix`, both as bytes; `serialize` is by default the key's."""
        start = (serialize or self._serialize_key)(prefix)
        return self._typed(self._raw_scan(start, after_prefix(start), False))

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values, like a mapping; same as `all`."""
        return self.all()

    def keys(self) -> Iterator[K]:
        """Yield all keys, in byte order."""
        return iter(self)

    def values(self) -> Iterator[V]:
        """Yield all values, in byte order of the keys."""
        decode = self._decode
        return (decode(value) for _, value in self._raw_scan(None, None, False))

    def __iter__(self) -> Iterator[K]:
        deserialize = self._deserialize_key
        return (deserialize(key) for key, _ in self._raw_scan(None, None, False))

    def __len__(self) -> int:
        return sum(1 for _ in self._raw_scan(None, None, False))

    def __bool__(self) -> bool:
        return next(self._raw_scan(None, None, False), None) is not None

    def __contains__(self, key: K) -> bool:
        return self._raw_get(self._key_bytes(key)) is not None

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def _between(self, from_key: K | None, to_key: K | None, reverse: bool) -> Iterator[tuple[K, V]]:
        lower = None if from_key is None else self._serialize_key(from_key)
        upper = None if to_key is None else after(self._serialize_key(to_key))
        return self._typed(self._raw_scan(lower, upper, reverse))

    def _typed(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[K, V]]:
        deserialize, decode = self._deserialize_key, self._decode
        return ((deserialize(key), decode(value)) for key, value in rows)

    def _key_bytes(self, key: K) -> bytes:
        if key is None:
            raise null_key(self.name)
        return self._serialize_key(key)


class SpaceStore(KeyValueReads[K, V], StateStore):
    """A key-value store over a byte map, whose rows are logged as they are stored."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        key, value = spec.serdes
        super().__init__(key, value.deserialize)
        self.name: str = spec.name
        self._serialize = value.serialize
        self._space: Space = shard.space(spec.name, plain_log if spec.logged else None)

    def _raw_get(self, key: bytes) -> bytes | None:
        return self._space.get(key)

    def _raw_scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        return self._space.scan(lower, upper, reverse)

    def approximate_num_entries(self) -> int:
        """Return the approximate number of keys."""
        return self._space.count()

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """See `StateStore`."""
        self._space.bulk().update(zip(keys, values, strict=True))


class KeyValueStore(SpaceStore[K, V]):
    """A plain key-value store. Values are stored as their serde writes them."""

    def put(self, key: K, value: V | None, timestamp: int | None = None) -> None:
        """Set a key's value; None deletes it. Only stores with a TTL use the timestamp."""
        self._space.put(self._key_bytes(key), None if value is None else self._serialize(value))

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Set a key's value unless it has one; return the one it had."""
        old = self.get(key)
        if old is None and value is not None:
            self.put(key, value)
        return old

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Set several values."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> V | None:
        """Delete a key; return the value it had."""
        old = self.get(key)
        self.put(key, None)
        return old

    @overload
    def pop(self, key: K) -> V: ...

    @overload
    def pop(self, key: K, default: D) -> V | D: ...

    def pop(self, key: K, default: Any = _REQUIRED) -> Any:
        """Delete a key and return its value, or `default`; without a default, raise `KeyError` for a missing key."""
        old = self.delete(key)
        if old is not None:
            return old
        if default is _REQUIRED:
            raise KeyError(key)
        return default

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        if self.delete(key) is None:
            raise KeyError(key)
