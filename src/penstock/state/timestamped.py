"""Timestamped key-value stores: tables. A value is kept with its event time in eight bytes before it, as in Java."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import StateError
from penstock.records import ValueAndTimestamp
from penstock.state.keyvalue import KeyValueReads
from penstock.state.store import plain_log

if TYPE_CHECKING:
    from penstock.state.overlay import Space
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Lane

K = TypeVar("K")
V = TypeVar("V")

_time = Struct(">q")
_pack = _time.pack
_unpack_from = _time.unpack_from
_UNKNOWN: Any = object()
_new = tuple.__new__  # half the price of ValueAndTimestamp(...), and this is the hot path


def value_decoder(deserialize: Callable[[bytes], V]) -> Callable[[bytes], V]:
    """How to read the value out of a timestamped value's bytes."""
    return lambda raw: deserialize(raw[8:])


def entry_decoder(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], ValueAndTimestamp]:
    """How to read a timestamped value's bytes."""
    return lambda raw: _new(ValueAndTimestamp, (deserialize(raw[8:]), _unpack_from(raw)[0]))


def timestamp_of(raw: bytes) -> int:
    """The event time in a timestamped value's bytes."""
    time: int = _unpack_from(raw)[0]
    return time


class TimestampedKeyValueStore(KeyValueReads[K, V]):
    """A key-value store that knows the event time of each value.

    Reads give plain values; `entry` and `entries` give them with their time.
    """

    def __init__(self, lane: Lane, spec: StoreSpec) -> None:
        key, value = spec.serdes
        super().__init__(key, value_decoder(value.deserialize))
        self.name = spec.name
        self._serialize = value.serialize
        self._deserialize = value.deserialize
        self._decode_entry = entry_decoder(value.deserialize)
        self._space: Space = lane.space(spec.name, plain_log if spec.logged else None)

    def _raw_get(self, key: bytes) -> bytes | None:
        return self._space.get(key)

    def _raw_scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        return self._space.scan(lower, upper, reverse)

    def entry(self, key: K) -> ValueAndTimestamp | None:
        """The value of a key with its event time."""
        raw = self._raw_get(self._key_bytes(key))
        return None if raw is None else self._decode_entry(raw)

    @property
    def entries(self) -> KeyValueReads[K, ValueAndTimestamp]:
        """The same store, read with event times."""
        return _Entries(self, self._decode_entry)

    def put(self, key: K, value: V | None, timestamp: int) -> None:
        """Set a key's value as of `timestamp`; None deletes it."""
        self._put_raw(self._key_bytes(key), None if value is None else _pack(timestamp) + self._serialize(value))

    def put_if_absent(self, key: K, value: V | None, timestamp: int) -> ValueAndTimestamp | None:
        """Set a key's value unless it has one; gives back the one it had."""
        old = self.entry(key)
        if old is None and value is not None:
            self.put(key, value, timestamp)
        return old

    def put_all(self, entries: Iterable[tuple[K, V | None, int]]) -> None:
        """Set many; each is key, value, timestamp."""
        for key, value, timestamp in entries:
            self.put(key, value, timestamp)

    def delete(self, key: K) -> ValueAndTimestamp | None:
        """Delete a key; gives back what it had."""
        old = self.entry(key)
        self._put_raw(self._key_bytes(key), None)
        return old

    def approximate_num_entries(self) -> int:
        """How many keys there are, as far as the engine knows without looking at each."""
        return self._space.count()

    def before_commit(self) -> None:
        """See `Store`."""

    def discard(self) -> None:
        """See `Store`."""

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """See `Store`."""
        for key, value in zip(keys, values, strict=True):
            self._put_raw(key, value)

    def _put_raw(self, key: bytes, raw: bytes | None) -> None:
        self._space.put(key, raw)


class _Entries(KeyValueReads[K, ValueAndTimestamp]):
    """A timestamped store seen with its times."""

    def __init__(self, store: TimestampedKeyValueStore[K, Any], decode: Callable[[bytes], ValueAndTimestamp]) -> None:
        self._serialize_key = store._serialize_key
        self._deserialize_key = store._deserialize_key
        self._decode = decode
        self._store = store

    def _raw_get(self, key: bytes) -> bytes | None:
        return self._store._raw_get(key)

    def _raw_scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        return self._store._raw_scan(lower, upper, reverse)


class CachedKeyValueStore(TimestampedKeyValueStore[K, V]):
    """A timestamped store that keeps what an epoch writes as objects, and makes bytes of each key once.

    A value put into it is the store's own until the epoch is settled: who reads it meanwhile gets the same object.
    """

    def __init__(self, lane: Lane, spec: StoreSpec) -> None:
        super().__init__(lane, spec)
        self._objects: dict[Any, ValueAndTimestamp | None] = {}

    def entry(self, key: K) -> ValueAndTimestamp | None:
        """The value of a key with its event time."""
        held: ValueAndTimestamp | None = self._objects.get(key, _UNKNOWN)
        if held is not _UNKNOWN:
            return held
        raw = self._space.get(self._key_bytes(key))
        return None if raw is None else _new(ValueAndTimestamp, (self._deserialize(raw[8:]), _unpack_from(raw)[0]))

    def get(self, key: K) -> V | None:
        """The value of a key, None if it has none."""
        found = self.entry(key)
        return None if found is None else found[0]

    def put(self, key: K, value: V | None, timestamp: int) -> None:
        """Set a key's value as of `timestamp`; None deletes it."""
        if key is None:
            raise StateError("a store has no null key")
        self._objects[key] = None if value is None else _new(ValueAndTimestamp, (value, timestamp))

    def delete(self, key: K) -> ValueAndTimestamp | None:
        """Delete a key; gives back what it had."""
        old = self.entry(key)
        self.put(key, None, -1)
        return old

    def __contains__(self, key: K) -> bool:
        return self.entry(key) is not None

    def settle(self) -> None:
        """Make bytes of what is held as objects; nothing that is read changes."""
        objects = self._objects
        if objects:
            written, name, serialize = self._space.bulk(), self._name_bytes, self._serialize
            for key, held in objects.items():
                written[name(key)] = None if held is None else _pack(held[1]) + serialize(held[0])
            objects.clear()

    def approximate_num_entries(self) -> int:
        """How many keys there are, as far as the engine knows without looking at each."""
        self.settle()
        return super().approximate_num_entries()

    def before_commit(self) -> None:
        """See `Store`."""
        self.settle()

    def discard(self) -> None:
        """See `Store`."""
        self._objects.clear()

    @property
    def _name_bytes(self) -> Callable[[Any], bytes]:
        """How a name among the objects becomes the key's bytes."""
        return self._serialize_key

    def _raw_get(self, key: bytes) -> bytes | None:
        self.settle()
        return self._space.get(key)

    def _raw_scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        self.settle()
        return self._space.scan(lower, upper, reverse)


class CachedByBytesKeyValueStore(CachedKeyValueStore[K, V]):
    """The same where equal keys may have different bytes, or cannot be hashed: objects are named by the key's bytes."""

    def entry(self, key: K) -> ValueAndTimestamp | None:
        """The value of a key with its event time."""
        name = self._key_bytes(key)
        held: ValueAndTimestamp | None = self._objects.get(name, _UNKNOWN)
        if held is not _UNKNOWN:
            return held
        raw = self._space.get(name)
        return None if raw is None else self._decode_entry(raw)

    def put(self, key: K, value: V | None, timestamp: int) -> None:
        """Set a key's value as of `timestamp`; None deletes it."""
        held = None if value is None else _new(ValueAndTimestamp, (value, timestamp))
        self._objects[self._key_bytes(key)] = held

    @property
    def _name_bytes(self) -> Callable[[Any], bytes]:
        return bytes
