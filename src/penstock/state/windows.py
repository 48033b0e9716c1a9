"""Window stores: values by key and window start, kept for the store's retention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import RegistryError, SerializationError
from penstock.records import ValueAndTimestamp, Windowed
from penstock.state.bounds import MAX_TIME
from penstock.state.by_value import Encoded, writer
from penstock.state.segments import KeyFirst, Layout, Occurrence, Retention, TimeFirst
from penstock.state.store import StateStore, null_key
from penstock.state.timestamped import entry_decoder, value_decoder

if TYPE_CHECKING:
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard

K = TypeVar("K")
V = TypeVar("V")

_suffix = Struct(">qi")
_pack = _suffix.pack
_unpack = _suffix.unpack
_pack_time = Struct(">q").pack
_SIZE = 12
_LAST_SEQUENCE = 0x7FFFFFFF
_new = tuple.__new__


class WindowReads(Generic[K, V]):
    """Reads of a window store. Times are window starts, inclusive; expired windows are hidden."""

    _serialize_key: Callable[[K], bytes]
    _deserialize_key: Callable[[bytes], K]
    _decode: Callable[[bytes], V]
    _layout: Layout
    _retention: Retention
    _spec: StoreSpec
    _seen_from: Callable[[int], int]
    """Returns the first visible window start at a time."""

    def fetch(self, key: K, time: int) -> V | None:
        """Return the value of a key's window that starts at `time`."""
        raw = self._fetch_raw(key, time)
        return None if raw is None else self._decode(raw)

    def fetch_range(self, key: K, from_time: int, to_time: int, reverse: bool = False) -> Iterator[tuple[int, V]]:
        """Yield start and value of a key's windows, by start."""
        lowest, highest = self._limits(from_time, to_time)
        if lowest > highest:
            return iter(())
        decode = self._decode
        rows = self._layout.of_key(
            self._key_bytes(key),
            _pack(lowest, 0),
            _pack(highest, _LAST_SEQUENCE),
            self._segments(lowest, highest),
            reverse,
        )
        return ((_unpack(suffix)[0], decode(raw)) for suffix, raw in rows)

    def fetch_keys(
        self, from_key: K | None, to_key: K | None, from_time: int, to_time: int, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the windows of all keys between two keys (inclusive; None: open), by segment and then byte order."""
        lowest, highest = self._limits(from_time, to_time)
        lower = None if from_key is None else self._serialize_key(from_key)
        upper = None if to_key is None else self._serialize_key(to_key)
        if lowest > highest or (lower is not None and upper is not None and lower > upper):
            return iter(())
        rows = self._layout.of_keys(lower, upper, self._segments(lowest, highest), reverse)
        return self._typed(row for row in rows if lowest <= _unpack(row[1])[0] <= highest)

    def fetch_all(self, from_time: int, to_time: int, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Yield the windows of all keys that start within the given times."""
        lowest, highest = self._limits(from_time, to_time)
        if lowest > highest:
            return iter(())
        return self._typed(self._layout.of_times(lowest, highest, reverse))

    def all(self, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Yield all windows."""
        return self.fetch_all(0, MAX_TIME, reverse)

    def items(self) -> Iterator[tuple[Windowed[K], V]]:
        """Yield windowed keys and values, like a mapping; same as `all`."""
        return self.all()

    @property
    def observed_stream_time(self) -> int:
        """The latest window start the store has seen, -1 before the first."""
        return self._retention.observed

    def _limits(self, from_time: int, to_time: int) -> tuple[int, int]:
        retention = self._retention
        return max(from_time, self._seen_from(retention.time), 0), min(to_time, retention.observed)

    def _segments(self, lowest: int, highest: int) -> range:
        return range(self._retention.segment(lowest), self._retention.segment(highest) + 1)

    def _fetch_raw(self, key: K, time: int) -> bytes | None:
        raise NotImplementedError

    def _key_bytes(self, key: K) -> bytes:
        if key is None:
            raise null_key(self._spec.name)
        return self._serialize_key(key)

    def _typed(self, rows: Iterator[Occurrence]) -> Iterator[tuple[Windowed[K], V]]:
        deserialize, decode, size = self._deserialize_key, self._decode, self._spec.window_size_ms or 0
        for key, suffix, raw in rows:
            start = _unpack(suffix)[0]
            yield _new(Windowed, (deserialize(key), start, min(start + size, MAX_TIME))), decode(raw)


class WindowStore(WindowReads[K, V], StateStore):
    """A window store. With `retain_duplicates` each put adds another value to its key and window."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        key, value = spec.serdes
        self.name: str = spec.name
        self._spec = spec
        self._serialize_key = key.serialize
        self._deserialize_key = key.deserialize
        self._serialize = value.serialize
        self._decode = value.deserialize
        self._retention = Retention(shard, spec)
        self._seen_from = _seen_from(spec)
        self._duplicates = spec.retain_duplicates
        self._interval = spec.segment_ms
        self._observed = shard.registers.register(f"{spec.name}/observed_stream_time", -1)
        self._sequence = shard.registers.register(f"{spec.name}/sequence", 0)
        self._layout = (
            TimeFirst(shard, spec, self._retention, _SIZE, before_key=8)
            if spec.time_ordered
            else KeyFirst(shard, spec, self._retention, _SIZE)
        )

    def put(self, key: K, value: V | None, window_start: int) -> bool:
        """Set the value of a key's window; None deletes it. Return False if the window has expired: nothing is written."""
        return self._put_raw(key, None if value is None else self._serialize(value), window_start)

    def before_commit(self) -> None:
        """See `StateStore`."""
        self._layout.purge()

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """See `StateStore`."""
        for row in keys:
            time, sequence = _unpack(row[-_SIZE:])
            self._retention.advance(time)
            self._sequence.value = max(self._sequence.value, sequence)
        self._layout.restore(keys, values)

    def _put_raw(self, key: K, raw: bytes | None, window_start: int) -> bool:
        observed = self._observed.value
        if self._duplicates:
            if raw is None:
                return False
            self._sequence.value = (self._sequence.value + 1) & _LAST_SEQUENCE
        if window_start > observed:
            self._retention.advance(window_start)
        elif window_start < self._seen_from(self._retention.time):
            return False
        segment = window_start // self._interval if window_start > 0 else 0
        self._layout.put(segment, self._key_bytes(key), _pack(window_start, self._sequence.value), raw)
        return True

    def _fetch_raw(self, key: K, time: int) -> bytes | None:
        if time < self._seen_from(self._retention.time):
            return None
        segment = time // self._interval if time > 0 else 0
        return self._layout.get(segment, self._key_bytes(key), _pack(time, self._sequence.value))


def _seen_from(spec: StoreSpec) -> Callable[[int], int]:
    """Return how far back a window store shows its windows: exactly as far as Kafka Streams' stores.

    With a cache, by whole segments: Kafka Streams' record cache shows expired windows as long as it has room, and a late
    cogrouped stream may still update them.
    """
    retention, interval = spec.retention_ms or 0, spec.segment_ms
    if spec.cached:
        return lambda observed: (observed - retention) // interval * interval if observed > retention else 0
    reach = retention - (0 if spec.time_ordered else 1)
    return lambda observed: observed - reach


class TimestampedWindowStore(WindowStore[K, V]):
    """A window store with the event time of each value. Reads return plain values; `fetch_entry` and `entries` add the time.

    `hold` keeps a value that nothing changes, which is written when anyone reads the store, and at the end of the epoch: a window
    that many records update is serialized once.
    """

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        super().__init__(shard, spec)
        self._serialize = writer(spec.serdes[1])
        self._decode_entry = entry_decoder(self._decode)
        self._decode = value_decoder(self._decode)
        self._held: dict[tuple[K, int], tuple[V, int]] = {}

    def put(self, key: K, value: V | None, window_start: int, timestamp: int = -1) -> bool:
        """Set the value of a key's window as of `timestamp`; None deletes it. Return False if the window has expired."""
        raw = None if value is None else _pack_time(timestamp) + self._serialize(value)
        self._held.pop((key, window_start), None)
        return self._put_raw(key, raw, window_start)

    def hold(self, key: K, value: V, window_start: int, timestamp: int) -> bool:
        """As `put`, for a value that is held, and a key whose equals have the same bytes."""
        if value is None or type(value) is Encoded:
            return self.put(key, value, window_start, timestamp)
        if window_start > self._observed.value:
            self._retention.advance(window_start)
        elif window_start < self._seen_from(self._retention.time):
            return False
        self._held[key, window_start] = (value, timestamp)
        return True

    def held_entry(self, key: K, time: int) -> tuple[V, int] | None:
        """As `fetch_entry`, for the table that owns the store; a value that is held stays held."""
        held = self._held.get((key, time))
        if held is not None:
            return None if time < self._seen_from(self._retention.time) else held
        raw = super()._fetch_raw(key, time)
        return None if raw is None else self._decode_entry(raw)

    def around_key(self, start: int) -> tuple[bytes, bytes]:
        """Return what is before and after a key in the name of its row, for a window that starts then; not if `time_ordered`."""
        return _pack_time(self._retention.segment(start)), _pack(start, self._sequence.value)

    def before_commit(self) -> None:
        """See `StateStore`."""
        self.settle()
        super().before_commit()

    def discard(self) -> None:
        """See `StateStore`."""
        self._held.clear()

    def settle(self) -> None:
        """Write the values that are held, and let go of them."""
        held, self._held = self._held, {}
        serialize, key_bytes, interval, put = self._serialize, self._key_bytes, self._interval, self._layout.put
        for (key, start), (value, timestamp) in held.items():
            try:
                raw = _pack_time(timestamp) + serialize(value)
            except RegistryError:
                raise
            except Exception as error:  # far from the record that set the value: name the key
                raise SerializationError(f"{error} (store {self.name!r}, key {key!r}, window {start})") from error
            put(start // interval if start > 0 else 0, key_bytes(key), _pack(start, self._sequence.value), raw)

    def _limits(self, from_time: int, to_time: int) -> tuple[int, int]:
        if self._held:
            self.settle()
        return super()._limits(from_time, to_time)

    def _fetch_raw(self, key: K, time: int) -> bytes | None:
        if self._held:
            self.settle()
        return super()._fetch_raw(key, time)

    def fetch_entry(self, key: K, time: int) -> ValueAndTimestamp[V] | None:
        """Return the value of a key's window that starts at `time`, with its event time."""
        raw = self._fetch_raw(key, time)
        return None if raw is None else self._decode_entry(raw)

    @property
    def entries(self) -> WindowReads[K, ValueAndTimestamp[V]]:
        """The same store, read with event times."""
        return _Entries(self, self._decode_entry)


class _Entries(WindowReads[K, ValueAndTimestamp[Any]]):
    """A timestamped window store, read with event times."""

    def __init__(self, store: TimestampedWindowStore[K, Any], decode: Callable[[bytes], ValueAndTimestamp[Any]]) -> None:
        self._store = store
        self._spec = store._spec
        self._serialize_key = store._serialize_key
        self._deserialize_key = store._deserialize_key
        self._decode = decode
        self._layout = store._layout
        self._retention = store._retention

    def _limits(self, from_time: int, to_time: int) -> tuple[int, int]:
        return self._store._limits(from_time, to_time)

    def _fetch_raw(self, key: K, time: int) -> bytes | None:
        return self._store._fetch_raw(key, time)
