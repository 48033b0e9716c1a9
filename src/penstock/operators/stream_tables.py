"""Joins of a stream with a table or a global table: each record of the stream looks up one entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import FAILURES, TopologyError
from penstock.processor import Host, Lineage, Operator
from penstock.records import Headers, Process
from penstock.serdes import Serde
from penstock.state import RawLayout, StoreKind, StoreSpec
from penstock.state.buffers import NEVER, RecordBuffer, Waiting

NULL = "null join key or value"


@dataclass(frozen=True, slots=True)
class StreamTableJoin(Operator):
    """Joins a stream's records with the table's value of the same key; a versioned table's as of the record's time.

    With `grace_ms`, a record waits in `buffer_store` until stream time is that much later, so that the table can catch up.
    """

    lineage: ClassVar[Lineage] = Lineage.MEETS

    table: str
    joiner: Callable[[Any, Any, Any], Any]
    left: bool
    grace_ms: int | None = None
    buffer_store: str | None = None

    def bind(self, host: Host, forward: Process) -> Process:
        """See `Operator.bind`."""
        join = self._joining(host, forward)
        if self.grace_ms is not None and self.buffer_store is not None:
            join = self._buffered(host, join, self.grace_ms, self.buffer_store)
        left, failed, dropped = self.left, host.failed, host.dropped

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if value is None or (key is None and not left):
                    dropped(NULL)
                else:
                    join(key, value, timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process

    def _joining(self, host: Host, forward: Process) -> Process:
        """Look up, join and forward."""
        view, joiner, left = host.view(self.table), self.joiner, self.left
        get, get_as_of, is_versioned = view.get, view.get_as_of, view.is_versioned

        def join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                entry = None
            else:
                entry = get_as_of(key, timestamp) if is_versioned else get(key)
            if entry is not None:
                forward(key, joiner(key, value, entry.value), timestamp, headers)
            elif left:
                forward(key, joiner(key, value, None), timestamp, headers)

        return join

    def _buffered(self, host: Host, join: Process, grace_ms: int, buffer_store: str) -> Process:
        """Buffer the record and join it later, unless it is already late or has no key."""
        if not host.view(self.table).is_versioned:
            raise TopologyError(f"{host.node}: a join with a grace period needs a versioned table.")
        buffer = RecordBuffer(host.store(buffer_store))
        observe, metadata, at = host.time.clock(f"{buffer_store}/buffer").observe, host.cursor.metadata, host.cursor.at
        key_serde, value_serde = host.spec(buffer_store).serdes
        serialize_key, deserialize_key = key_serde.serialize, key_serde.deserialize
        serialize, deserialize = value_serde.serialize, value_serde.deserialize

        def release(due: int) -> None:
            if buffer.earliest <= due:
                for waited_since, waiting_key, record in buffer.take(due):
                    with at(record.origin):
                        join(deserialize_key(waiting_key), deserialize(record.value), waited_since, record.headers)

        host.time.wait_for_watermark(
            lambda: min(buffer.earliest + grace_ms, NEVER), lambda watermark: release(watermark - grace_ms)
        )
        waits_for_watermark = host.time.has_watermarks

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                join(key, value, timestamp, headers)
                return
            due = observe(timestamp) - grace_ms
            if timestamp < due:
                join(key, value, timestamp, headers)
                return
            buffer.add(timestamp, serialize_key(key), Waiting(serialize(value), headers, metadata()))
            if not waits_for_watermark:
                release(due)

        return process


@dataclass(frozen=True, slots=True)
class StreamGlobalTableJoin(Operator):
    """Joins a stream's records with the global table's value of the key that the selector returns."""

    store: str
    key_selector: Callable[[Any, Any], Any]
    joiner: Callable[[Any, Any, Any], Any]
    left: bool

    def bind(self, host: Host, forward: Process) -> Process:
        """See `Operator.bind`."""
        get, select, joiner, left = host.store(self.store).get, self.key_selector, self.joiner, self.left
        failed, dropped = host.failed, host.dropped

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                selected = None if value is None else select(key, value)
                if value is None or (selected is None and not left):
                    dropped(NULL)
                    return
                found = None if selected is None else get(selected)
                if left or found is not None:
                    forward(key, joiner(key, value, found), timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process


def join_buffer_spec(name: str, *, key: Serde[Any], value: Serde[Any]) -> StoreSpec:
    """Return the store of a stream–table join with a grace period; the serdes are the stream's."""
    return StoreSpec(name, StoreKind.RAW, key, value, layout=RawLayout.WAITING)
