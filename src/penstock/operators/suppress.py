"""Suppression: a table whose changes are held back until their window closes, a time limit passes or the buffer is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from penstock.errors import FAILURES, StateError
from penstock.processor import Host, TableOperator, View
from penstock.records import NO_TIMESTAMP, Change, Headers, Process, ValueAndTimestamp
from penstock.serdes import Serde
from penstock.state import RawLayout, StoreKind, StoreSpec
from penstock.state.buffers import NEVER, ChangeBuffer, Held
from penstock.timing import BufferConfig, Suppressed


@dataclass(frozen=True, slots=True)
class Suppress(TableOperator):
    """Holds back the last change of each key; the parent must send old values.

    Final results wait until `grace_ms` (that of the windows) after the end of their window; others for the emission's time
    limit after the first change. Changes are emitted with their own timestamp and headers.
    """

    parent_table: str
    store: str
    emission: Suppressed
    grace_ms: int = 0

    def bind(self, host: Host, forward: Process) -> Process:
        """See `Operator.bind`."""
        final, bounds = self.emission.final_results, self.emission.buffer
        wait = self.grace_ms if self.emission.wait_ms is None else self.emission.wait_ms
        buffer = ChangeBuffer(host.store(self.store))
        observe = host.time.clock(f"{self.store}/suppress").observe
        metadata, failed, at = host.cursor.metadata, host.failed, host.cursor.at
        key_serde, value_serde = host.spec(self.store).serdes
        serialize_key, deserialize_key = key_serde.serialize, key_serde.deserialize
        serialize, deserialize = value_serde.serialize, value_serde.deserialize
        bounded = bounds.max_records is not None or bounds.max_bytes is not None

        def emit(key_bytes: bytes, held: Held) -> None:
            if held.new is not None or not final:
                new = None if held.new is None else deserialize(held.new)
                old = None if held.old is None else deserialize(held.old)
                with at(held.origin):
                    forward(deserialize_key(key_bytes), Change(new, old), held.timestamp, held.headers)
            buffer.remove(key_bytes, held)

        def release(expired: int) -> None:
            if buffer.earliest <= expired:
                for key_bytes, held in buffer.up_to(expired):
                    emit(key_bytes, held)

        host.time.wait_for_watermark(lambda: min(buffer.earliest + wait, NEVER), lambda watermark: release(watermark - wait))
        release_by_record = _hold if host.time.has_watermarks else release

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                expired = observe(timestamp) - wait
                new = None if change.new is None else serialize(change.new)
                old = None if change.old is None else serialize(change.old)
                time = key.end if final else timestamp
                buffer.put(time, serialize_key(key), new, old, timestamp, headers, metadata())
                release_by_record(expired)
                if bounded and _is_over(buffer, bounds):
                    if bounds.strict:
                        failed(_full(host.node, buffer, bounds), key)
                        return
                    for key_bytes, held in buffer.up_to(NEVER):
                        if not _is_over(buffer, bounds):
                            break
                        emit(key_bytes, held)
            except FAILURES as error:
                failed(error, key)

        return process

    def view(self, host: Host) -> View:
        """Return the table as downstream has seen it: a key held back still has its prior value, without a known time."""
        buffer, parent = ChangeBuffer(host.store(self.store)), host.view(self.parent_table).get
        key_serde, value_serde = host.spec(self.store).serdes
        serialize_key, deserialize, node = key_serde.serialize, value_serde.deserialize, host.node

        def get(key: Any) -> ValueAndTimestamp[Any] | None:
            held = buffer.get(serialize_key(key))
            if held is None:
                return parent(key)
            return None if held.prior is None else ValueAndTimestamp(deserialize(held.prior), NO_TIMESTAMP)

        def get_as_of(key: Any, timestamp: int) -> NoReturn:
            raise StateError(f"{node}: a suppressed table has no versions and cannot be read as of a time.")

        return View(get, get_as_of, is_versioned=False)


def _hold(expired: int) -> None:
    """Release nothing: changes wait for the application's watermark, not for records."""


def _is_over(buffer: ChangeBuffer, bounds: BufferConfig) -> bool:
    records, size = buffer.measured
    return (bounds.max_records is not None and records > bounds.max_records) or (
        bounds.max_bytes is not None and size > bounds.max_bytes
    )


def _full(node: str, buffer: ChangeBuffer, bounds: BufferConfig) -> StateError:
    records, size = buffer.measured
    most_records = "unlimited" if bounds.max_records is None else bounds.max_records
    most_bytes = "unlimited" if bounds.max_bytes is None else bounds.max_bytes
    return StateError(
        f"{node}: the suppression buffer is full: {records} records (limit {most_records}), {size} bytes (limit {most_bytes}). "
        "Raise the limit or call emit_early_when_full()."
    )


def suppress_buffer_spec(name: str, emission: Suppressed, *, key: Serde[Any], value: Serde[Any]) -> StoreSpec:
    """Return the store of a suppression; `key` is the serde of the table's keys including their windows."""
    buffer = emission.buffer
    return StoreSpec(
        name,
        StoreKind.RAW,
        key,
        value,
        logged=buffer.logged,
        changelog_config=buffer.changelog_config,
        layout=RawLayout.HELD,
    )
