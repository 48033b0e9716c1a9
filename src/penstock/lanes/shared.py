"""A shared store as a processor in one shard sees it: reads are immediate, writes go through an exchange to the key's shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import LaneMovedError, ProcessingError
from penstock.lanes.cursor import Cursor
from penstock.lanes.stores import Stores
from penstock.records import NO_HEADERS, NO_TIMESTAMP, Process
from penstock.state import ShardState, SharedKeyValueStore, StoreSpec, Write


class LaneSharedStore(SharedKeyValueStore[Any, Any]):
    """Reads keys of its own shard as they are now, and others, even in the same lane, as of the end of the epoch before.

    Writes to keys of its own shard go through the exchange, too: so the order of writes is the same with any number of lanes.
    """

    def __init__(
        self,
        spec: StoreSpec,
        user: str,
        stores: Stores,
        cursor: Cursor,
        stream_time: Callable[[], int],
        send: Process | None,
    ) -> None:
        super().__init__(spec, user)
        self._stores = stores
        self._cursor = cursor
        self._stream_time = stream_time
        self._own = stores.store(spec.name)
        self._send = send
        self._others: dict[ShardState, Any] = {}

    def get(self, key: Any) -> Any:
        """See `SharedKeyValueStore`."""
        name = self._key_bytes(key)
        if self._stores.owns(name):
            return self._own.get(key)
        try:
            owner = self._stores.owner_before(name)
        except LaneMovedError:
            raise
        except Exception as error:  # not the record's fault: a handler must not drop the record
            raise ProcessingError(
                f"{self._user} cannot read key {key!r} of store {self.name!r} in another shard: {type(error).__name__}: {error}"
            ) from error
        store = self._others.get(owner)
        if store is None:
            store = self._others[owner] = owner.store(self._spec)
        return store.get(key)

    def _do(self, key: Any, write: Write) -> None:
        self._key_bytes(key)  # raises at once if it cannot be a key
        assert self._send is not None
        time, now = self._cursor.position.timestamp(), self._stream_time()
        time = now if time == NO_TIMESTAMP else min(time, now)
        self._send(key, write, max(time, 0), NO_HEADERS)
