"""Stream–stream joins: each side stores its records for as long as they may find a partner, and reads the other side's.

Two nodes per side: `JoinWindowStore` stores the side's records, `StreamStreamJoin` below it looks for partners.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from penstock.errors import FAILURES
from penstock.operators.drops import NULL_KEY_OR_VALUE
from penstock.processor import Host, Lineage, Operator
from penstock.records import NO_HEADERS, Headers, Process
from penstock.serdes import Serde
from penstock.state import RawLayout, StoreKind, StoreSpec
from penstock.state.buffers import NEVER, Unjoined, UnjoinedBuffer
from penstock.timing import JoinWindows

JoinKind = Literal["inner", "left", "outer"]

Joiner = Callable[[Any, Any, Any], Any]
"""`joiner(key, left, right)`."""


@dataclass(frozen=True, slots=True)
class JoinWindowStore(Operator):
    """Stores a side's records for the other side to find, after they have looked for partners themselves."""

    lineage: ClassVar[Lineage] = Lineage.KEEPS

    store: str

    def bind(self, host: Host, forward: Process) -> Process:
        """See `Operator.bind`."""
        put, failed, dropped = host.store(self.store).put, host.failed, host.dropped

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                forward(key, value, timestamp, headers)
                if key is not None and value is not None and not put(key, value, timestamp):
                    dropped("expired")
            except FAILURES as error:
                failed(error, key)

        return process


@dataclass(frozen=True, slots=True)
class StreamStreamJoin(Operator):
    """One side of a stream–stream join: joins a record with all of the other side's records within the window.

    Records without a partner (a left join's left side, both sides of an outer join) wait in `outer_store` until their window
    closes. Both sides share that store, the stream time and the earliest waiting time.
    """

    lineage: ClassVar[Lineage] = Lineage.MEETS

    kind: JoinKind
    left_side: bool
    left_store: str
    right_store: str
    outer_store: str | None
    windows: JoinWindows
    joiner: Joiner

    def bind(self, host: Host, forward: Process) -> Process:
        """See `Operator.bind`."""
        return self._bind_inner(host, forward) if self.outer_store is None else self._bind_outer(host, forward, self.outer_store)

    def _side(self, host: Host) -> tuple[Callable[..., Any], int, int, Joiner]:
        """Return how to read the other side, how far before and after a record, and the joiner as this side calls it."""
        joiner, windows = self.joiner, self.windows
        if self.left_side:
            return host.store(self.right_store).fetch_range, windows.before_ms, windows.after_ms, joiner
        # Seen from the right, before and after are swapped.
        return (
            host.store(self.left_store).fetch_range,
            windows.after_ms,
            windows.before_ms,
            lambda key, this, other: joiner(key, other, this),
        )

    def _bind_inner(self, host: Host, forward: Process) -> Process:
        fetch, before, after, join = self._side(host)
        failed, dropped = host.failed, host.dropped

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if key is None or value is None:
                    dropped(NULL_KEY_OR_VALUE)
                    return
                for met, other in fetch(key, max(0, timestamp - before), max(0, timestamp + after)):
                    forward(key, join(key, value, other), max(met, timestamp), headers)
            except FAILURES as error:
                failed(error, key)

        return process

    def _bind_outer(self, host: Host, forward: Process, outer_store: str) -> Process:
        fetch, before, after, join = self._side(host)
        failed, dropped = host.failed, host.dropped
        left_side, right_side = self.left_side, not self.left_side
        waits = left_side or self.kind == "outer"
        other_waits = right_side or self.kind == "outer"
        observe = host.time.clock(f"{self.left_store}/join").observe
        unjoined = _Unjoined(self, host, forward, outer_store)
        waits_for_watermark = host.time.has_watermarks
        if left_side:  # once for both sides, which share the buffer
            host.time.wait_for_watermark(unjoined.due, unjoined.reach)
        key_serde, value_serde = host.spec(self.left_store if left_side else self.right_store).serdes
        serialize_key, serialize = key_serde.serialize, value_serde.serialize

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                now = observe(timestamp)
                if key is None or value is None:
                    if waits and value is not None:
                        forward(key, join(key, value, None), timestamp, headers)
                    else:
                        dropped(NULL_KEY_OR_VALUE)
                    return
                if timestamp == now and not waits_for_watermark:
                    unjoined.emit(now, after, headers)
                until = max(0, timestamp + after)
                alone = True
                for met, other in fetch(key, max(0, timestamp - before), until):
                    alone = False
                    if other_waits:
                        unjoined.buffer.met(met, right_side, serialize_key(key))
                    forward(key, join(key, value, other), max(met, timestamp), headers)
                if alone and waits:
                    if until < now:
                        forward(key, join(key, value, None), timestamp, headers)
                    else:
                        unjoined.add(timestamp, left_side, serialize_key(key), serialize(value))
            except FAILURES as error:
                failed(error, key)

        return process


class _Unjoined:
    """The records of a join that wait for a partner, and their emission without one."""

    def __init__(self, join: StreamStreamJoin, host: Host, forward: Process, store: str) -> None:
        self.buffer = UnjoinedBuffer(host.store(store))
        self._forward = forward
        self._joiner = join.joiner
        self._windows = join.windows
        (key, left), (_, right) = host.spec(join.left_store).serdes, host.spec(join.right_store).serdes
        self._key, self._left, self._right = key.deserialize, left.deserialize, right.deserialize
        self._earliest = host.register(f"{join.left_store}/earliest_unjoined", NEVER)

    def add(self, timestamp: int, is_left: bool, key: bytes, value: bytes) -> None:
        """Buffer a record."""
        self._earliest.value = min(self._earliest.value, timestamp)
        self.buffer.add(timestamp, is_left, key, value)

    def due(self) -> int:
        """Return the watermark at which the first of them may be emitted."""
        windows = self._windows
        return min(self._earliest.value + min(windows.after_ms, windows.before_ms) + windows.grace_ms + 1, NEVER)

    def reach(self, watermark: int) -> None:
        """Emit those that nothing can join any more; no record advanced the time, so there are no headers."""
        self.emit(watermark, min(self._windows.after_ms, self._windows.before_ms), NO_HEADERS)

    def emit(self, now: int, after: int, headers: Headers) -> None:
        """Emit the records whose window has closed, without a partner; `after` is that of the current record's side.

        They get the headers of the record that advanced the time. `_earliest` follows Kafka Streams exactly: it is where the
        walk over the buffer stopped, which can be later than the first remaining record; that one is then emitted later too.
        """
        if self._earliest.value + after + self._windows.grace_ms >= now:
            return
        closed, stopped_at = self._closed(now)
        previous: bytes | None = None
        for position, timestamp, is_left, key_bytes, value in closed:
            self._earliest.value = timestamp
            key = self._key(key_bytes)
            if is_left:
                result = self._joiner(key, self._left(value), None)
            else:
                result = self._joiner(key, None, self._right(value))
            self._forward(key, result, timestamp, headers)
            if previous is not None and previous != position:
                self.buffer.remove(previous)  # only after all records of the position are out, as one of them may fail
            previous = position
        if previous is not None:
            self.buffer.remove(previous)
        self._earliest.value = stopped_at

    def _closed(self, now: int) -> tuple[list[Unjoined], int]:
        """Return the records whose window has closed, and where the walk stopped: at the end, or when neither side has more."""
        left_closes = now - self._windows.after_ms - self._windows.grace_ms
        right_closes = now - self._windows.before_ms - self._windows.grace_ms
        closed: list[Unjoined] = []
        left_open = right_open = False
        stopped_at = NEVER
        for record in self.buffer:
            stopped_at = record.timestamp
            if left_open and right_open:
                break
            if record.timestamp < (left_closes if record.is_left else right_closes):
                closed.append(record)
            elif record.is_left:
                left_open = True
            else:
                right_open = True
        return closed, stopped_at


def join_store_specs(
    windows: JoinWindows,
    left_store: str,
    right_store: str,
    outer_store: str | None,
    *,
    key: Serde[Any],
    left_value: Serde[Any],
    right_value: Serde[Any],
    logged: bool = True,
    changelog_config: tuple[tuple[str, str], ...] = (),
) -> tuple[StoreSpec, ...]:
    """Return the stores of a stream–stream join: the left side's, the right side's and, unless it is inner, the shared one."""
    # Every record is its own row, so there is nothing to compact.
    by_time = (*(pair for pair in changelog_config if pair[0] != "cleanup.policy"), ("cleanup.policy", "delete"))
    sides = tuple(
        StoreSpec(
            store,
            StoreKind.WINDOW,
            key,
            value,
            retention_ms=windows.retention_ms,
            window_size_ms=windows.size_ms,
            retain_duplicates=True,
            logged=logged,
            changelog_config=by_time,
        )
        for store, value in ((left_store, left_value), (right_store, right_value))
    )
    if outer_store is None:
        return sides
    unjoined = StoreSpec(
        outer_store, StoreKind.RAW, key, logged=logged, changelog_config=changelog_config, layout=RawLayout.UNJOINED
    )
    return *sides, unjoined
