"""Key-value and timestamped stores with a TTL.

An entry expires when the store's time reaches its own time plus the TTL. The store's time is the highest it has seen, by a put
or by `observe`. A plain store keeps times like a timestamped one; a put without a time gets the store's. Expired entries are
hidden immediately, and removed in portions at each commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, TypeVar

from penstock.state.keyvalue import KeyValueStore, SpaceStore
from penstock.state.timestamped import TimestampedKeyValueStore, timestamp_of, value_decoder

if TYPE_CHECKING:
    from penstock.state.overlay import Space
    from penstock.state.specs import StoreSpec
    from penstock.state.store import Shard

K = TypeVar("K")
V = TypeVar("V")

_pack = Struct(">q").pack
_SHARE = 1000


class Expiry:
    """When entries of a space expire: the store's time, and an index of entries by their time.

    An index entry is stale if its key has a newer time, and is skipped then.
    """

    def __init__(self, shard: Shard, spec: StoreSpec, space: Space) -> None:
        self._ttl = spec.ttl_ms or 0
        self._space = space
        self._index = shard.space(f"{spec.name}/expiry")
        self._observed = shard.registers.register(f"{spec.name}/observed_stream_time", -1)

    @property
    def time(self) -> int:
        """The store's time, -1 before the first entry."""
        return self._observed.value

    def observe(self, time: int) -> None:
        """Advance the store's time to `time`."""
        self._observed.value = max(self._observed.value, time)

    def get(self, key: bytes) -> bytes | None:
        """Return a key's value unless it has expired."""
        raw = self._space.get(key)
        return raw if raw is not None and timestamp_of(raw) + self._ttl > self._observed.value else None

    def scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries within bounds that have not expired."""
        oldest = self._observed.value - self._ttl
        return (row for row in self._space.scan(lower, upper, reverse) if timestamp_of(row[1]) > oldest)

    def put(self, key: bytes, raw: bytes | None) -> None:
        """Set a key's value, which starts with its time."""
        self._space.put(key, raw)
        if raw is not None:
            self._index.put(raw[:8] + key, b"")
            self.observe(timestamp_of(raw))

    def purge(self) -> None:
        """Remove some expired entries, at least as fast as an epoch adds new ones."""
        due = self._index.scan(None, _pack(max(self._observed.value - self._ttl + 1, 0)))
        for _, (mark, _) in zip(range(_SHARE + 2 * len(self._space.dirty)), due, strict=False):
            raw = self._space.get(mark[8:])
            if raw is not None and raw[:8] == mark[:8]:
                self._space.put(mark[8:], None)
            self._index.put(mark, None)


class _Expiring(SpaceStore[K, V]):
    """What stores with a TTL have in common."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        super().__init__(shard, spec)
        self._expiry = Expiry(shard, spec, self._space)

    def observe(self, time: int) -> None:
        """Advance the store's time to `time`."""
        self._expiry.observe(time)

    def before_commit(self) -> None:
        """See `StateStore`."""
        self._expiry.purge()

    def restore(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """See `StateStore`."""
        for key, value in zip(keys, values, strict=True):
            self._expiry.put(key, value)

    def _raw_get(self, key: bytes) -> bytes | None:
        return self._expiry.get(key)

    def _raw_scan(self, lower: bytes | None, upper: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        return self._expiry.scan(lower, upper, reverse)


class ExpiringKeyValueStore(_Expiring[K, V], KeyValueStore[K, V]):
    """A plain key-value store with a TTL."""

    def __init__(self, shard: Shard, spec: StoreSpec) -> None:
        super().__init__(shard, spec)
        self._decode = value_decoder(self._decode)

    def put(self, key: K, value: V | None, timestamp: int | None = None) -> None:
        """Set a key's value as of `timestamp`, by default the store's time; None deletes it."""
        time = max(self._expiry.time, 0) if timestamp is None else timestamp
        self._expiry.put(self._key_bytes(key), None if value is None else _pack(time) + self._serialize(value))


class ExpiringTimestampedStore(_Expiring[K, V], TimestampedKeyValueStore[K, V]):
    """A timestamped store with a TTL."""

    def _put_raw(self, key: bytes, raw: bytes | None) -> None:
        self._expiry.put(key, raw)
