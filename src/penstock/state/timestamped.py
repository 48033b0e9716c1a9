"""Timestamped key-value stores: tables. A value is stored with its event time in eight bytes before it, as in Java."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from penstock.errors import RegistryError, SerializationError
from penstock.records import NO_HEADERS, Change, Headers, Process, ValueAndTimestamp
from penstock.state.by_value import IMMUTABLE, giver, holder, writer
from penstock.state.keyvalue import KeyValueReads, SpaceStore
from penstock.state.store import null_key

if TYPE_CHECKING:
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard

K = TypeVar("K")
V = TypeVar("V")

_time = Struct(">q")
pack_time: Callable[[int], bytes] = _time.pack
_unpack_from = _time.unpack_from
_new = tuple.__new__  # cheaper than ValueAndTimestamp(...), and this is the hot path


def value_decoder(deserialize: Callable[[bytes], V]) -> Callable[[bytes], V]:
    """Return how to read the value from a timestamped value's bytes."""
    return lambda raw: deserialize(raw[8:])


def entry_decoder(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], ValueAndTimestamp[Any]]:
    """Return how to read value and event time from a timestamped value's bytes."""
    return lambda raw: _new(ValueAndTimestamp, (deserialize(raw[8:]), _unpack_from(raw)[0]))


def timestamp_of(raw: bytes) -> int:
    """Return the event time in a timestamped value's bytes."""
    time: int = _unpack_from(raw)[0]
    return time


class TimestampedKeyValueStore(SpaceStore[K, V]):
    """A key-value store with the event time of each value.

    Reads return plain values; `entry` and `entries` return them with their time.
    """

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        super().__init__(shard, spec)
        self._serialize = writer(spec.serdes[1])
        self._deserialize = self._decode
        self._decode = value_decoder(self._deserialize)
        self._decode_entry = entry_decoder(self._deserialize)

    def entry(self, key: K) -> ValueAndTimestamp[V] | None:
        """Return the value of a key with its event time."""
        raw = self._raw_get(self._key_bytes(key))
        return None if raw is None else self._decode_entry(raw)

    @property
    def entries(self) -> KeyValueReads[K, ValueAndTimestamp[V]]:
        """The same store, read with event times."""
        return _Entries(self, self._decode_entry)

    def put(self, key: K, value: V | None, timestamp: int) -> None:
        """Set a key's value as of `timestamp`; None deletes it."""
        self._put_raw(self._key_bytes(key), None if value is None else pack_time(timestamp) + self._serialize(value))

    def put_if_absent(self, key: K, value: V | None, timestamp: int) -> ValueAndTimestamp[V] | None:
        """Set a key's value unless it has one; return the one it had."""
        old = self.entry(key)
        if old is None and value is not None:
            self.put(key, value, timestamp)
        return old

    def put_all(self, entries: Iterable[tuple[K, V | None, int]]) -> None:
        """Set several entries; each is key, value, timestamp."""
        for key, value, timestamp in entries:
            self.put(key, value, timestamp)

    def delete(self, key: K, timestamp: int | None = None) -> ValueAndTimestamp[V] | None:
        """Delete a key; return its old value. A cached table forwards the deletion with `timestamp`."""
        old = self.entry(key)
        self._put_raw(self._key_bytes(key), None)
        return old

    def __setitem__(self, key: K, value: V) -> NoReturn:
        raise TypeError(f"Store {self.name!r} keeps a timestamp with each value. Use put(key, value, timestamp).")

    def _put_raw(self, key: bytes, raw: bytes | None) -> None:
        self._space.put(key, raw)


class _Entries(KeyValueReads[K, ValueAndTimestamp[Any]]):
    """A timestamped store, read with event times."""

    def __init__(self, store: TimestampedKeyValueStore[K, Any], decode: Callable[[bytes], ValueAndTimestamp[Any]]) -> None:
        self._serialize_key = store._serialize_key
        self._deserialize_key = store._deserialize_key
        self._decode = decode
        self._store = store
        self.name: str = store.name

    def get(self, key: K) -> ValueAndTimestamp[Any] | None:
        """Return the value of a key with its event time, None if it has none."""
        return self._store.entry(key)

    def _raw_get(self, key: bytes) -> bytes | None:
        return self._store._raw_get(key)

    def _raw_scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        return self._store._raw_scan(lower, upper, reverse)


Held = tuple[Any, int, Any, Headers, int]
"""A held entry of a cached store: value by value, timestamp, key, and the headers and timestamp of the record that set it."""


class CachedKeyValueStore(TimestampedKeyValueStore[K, V]):
    """A timestamped store that holds values put since the last flush, by value, and serializes each key once.

    `flush` writes them and forwards, per key, the last value with the one before the first put as its old value; keys are in
    the order of their last put. This is Kafka Streams' record cache. The table that owns the store sets `held` itself: what
    ready aggregates compute it holds as objects, because no other code has them.
    """

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        super().__init__(shard, spec)
        self._hold = holder(spec.serdes[1])
        self._give = giver(spec.serdes[1])
        self.held: dict[Any, Held] = {}
        self._shown: dict[Any, Held] = {}
        self._old: dict[Any, bytes | None] = {}

    def load(self, key: K) -> ValueAndTimestamp[V] | None:
        """Return the value of a key that is not held."""
        raw = self._space.get(self._key_bytes(key))
        return None if raw is None else _new(ValueAndTimestamp, (self._deserialize(raw[8:]), _unpack_from(raw)[0]))

    def entry(self, key: K) -> ValueAndTimestamp[V] | None:
        """Return the value of a key with its event time."""
        held = self.held.get(self._name(key))
        if held is None:
            return self.load(key)
        value = held[0]
        if value is None:
            return None
        if type(value) not in IMMUTABLE:
            value = self._deserialize(self._serialize(value))  # the reader may change it
        return _new(ValueAndTimestamp, (value, held[1]))

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if it has none."""
        found = self.entry(key)
        return None if found is None else found[0]

    def put(self, key: K, value: V | None, timestamp: int) -> None:
        """Set a key's value as of `timestamp`; None deletes it."""
        self.hold(key, value, timestamp, NO_HEADERS, timestamp)

    def hold(self, key: K, value: V | None, timestamp: int, headers: Headers, record_timestamp: int) -> None:
        """Set a key's value, to be forwarded at the next flush with these headers; a deletion has the record's time."""
        if key is None:
            raise null_key(self.name)
        name, held = self._name(key), self._hold(value)
        self.held.pop(name, None)  # popped, then set again: the flush follows the order of the last puts
        self.held[name] = (held, timestamp, key, headers, record_timestamp)

    def delete(self, key: K, timestamp: int | None = None) -> ValueAndTimestamp[V] | None:
        """Delete a key as of `timestamp`, by default that of its value; return its old value."""
        old = self.entry(key)
        if old is not None:
            self.put(key, None, old[1] if timestamp is None else timestamp)
        return old

    def __contains__(self, key: K) -> bool:
        return self.entry(key) is not None

    def flush(self, forward: Process, send_old_values: bool) -> None:
        """Write the held entries, then forward them, except deletions of missing keys."""
        held = self.held
        if not held:
            return
        changes = list(held.values())
        if send_old_values:
            olds = [self._old_value(name) for name in held]
        else:
            olds = [self._old_value(name) if change[0] is None else None for name, change in held.items()]
        self.settle()
        give = self._give
        for (value, timestamp, key, headers, record_timestamp), old in zip(changes, olds, strict=True):
            if value is not None:
                forward(key, _new(Change, (give(value), old, True)), timestamp, headers)
            elif old is not None:
                forward(key, _new(Change, (None, old if send_old_values else None, True)), record_timestamp, headers)

    def settle(self) -> None:
        """Write the held entries and clear them, without forwarding."""
        self._write(self.held)
        self._let_go()

    def approximate_num_entries(self) -> int:
        """Return the approximate number of keys."""
        self._show_held()
        return super().approximate_num_entries()

    def before_commit(self) -> None:
        """See `StateStore`."""
        self.settle()

    def discard(self) -> None:
        """See `StateStore`."""
        self._let_go()

    def _name(self, key: K) -> Any:
        """Return what identifies a key: the key itself."""
        return key

    def _bytes_of(self, name: Any) -> bytes:
        return self._serialize_key(name)

    def _old_value(self, name: Any) -> Any:
        """Return the value before the first put since the last flush."""
        raw = self._old[name] if name in self._old else self._space.get(self._bytes_of(name))
        return None if raw is None else self._deserialize(raw[8:])

    def _let_go(self) -> None:
        self.held.clear()
        self._shown.clear()
        self._old.clear()

    def _write(self, held: dict[Any, Held]) -> None:
        if not held:
            return
        written, bytes_of, serialize = self._space.bulk(), self._bytes_of, self._serialize
        for name, (value, timestamp, key, *_) in held.items():
            try:
                written[bytes_of(name)] = None if value is None else pack_time(timestamp) + serialize(value)
            except RegistryError:
                raise
            except Exception as error:  # far from the record that set the value: name the key
                raise SerializationError(f"{error} (store {self.name!r}, key {key!r})") from error

    def _show_held(self) -> None:
        """Write puts since the last scan so that a scan sees them; remember the old values for the next flush.

        A put moves its key to the end of the held entries, so all entries before one that was shown were shown too.
        """
        shown, fresh = self._shown, dict[Any, Held]()
        for name, held in reversed(self.held.items()):
            if shown.get(name) is held:
                break
            fresh[name] = held
            if name not in self._old:
                self._old[name] = self._space.get(self._bytes_of(name))
        self._write(fresh)
        shown.update(fresh)

    def _raw_get(self, key: bytes) -> bytes | None:
        self._show_held()
        return self._space.get(key)

    def _raw_scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        self._show_held()
        return self._space.scan(lower, upper, reverse)


class CachedByBytesKeyValueStore(CachedKeyValueStore[K, V]):
    """The same for keys that cannot be hashed, or whose equal keys may have different bytes: identifies keys by their bytes."""

    def _name(self, key: K) -> Any:
        return self._key_bytes(key)

    def _bytes_of(self, name: Any) -> bytes:
        return bytes(name)
