"""Table–table joins on the key: one operator per side, which reads the other side's table, and one that merges both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from penstock.errors import FAILURES
from penstock.operators.drops import NULL_KEY
from penstock.operators.tables import dated, keeper, old_value_reader, stored_view, unversioned
from penstock.processor import Host, Lineage, TableOperator, View
from penstock.records import NO_TIMESTAMP, Change, Headers, Process, ValueAndTimestamp

JoinKind = Literal["inner", "left", "right", "outer"]

_NO_ROW = (None, NO_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class TableJoinSide(TableOperator):
    """Joins the changes of `this_table` with the rows of `other_table`.

    `kind` is seen from this side: a left join's left side is "left", its right side "right" and `reversed`, because
    the joiner takes the left row first.
    """

    lineage: ClassVar[Lineage] = Lineage.MEETS

    kind: JoinKind
    this_table: str
    other_table: str
    joiner: Callable[[Any, Any], Any]
    reversed: bool
    send_old_values: bool
    versioned: bool

    def bind(self, host: Host, forward: Process) -> Process:
        join, failed, dropped = self._join(), host.failed, host.dropped
        other_get = host.view(self.other_table).get
        send_old_values, versioned = self.send_old_values, self.versioned
        needs_other, does_without_this = self.kind in {"inner", "right"}, self.kind in {"right", "outer"}

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                new, old, is_latest = change
                if key is None:
                    dropped(NULL_KEY)
                    return
                if versioned and not is_latest:
                    dropped("out of order")
                    return
                other, other_timestamp = other_get(key) or _NO_ROW
                if other is None and (needs_other or (new is None and old is None)):
                    return
                joins_alone = does_without_this and other is not None
                joined = join(new, other) if joins_alone or new is not None else None
                joined_old = join(old, other) if send_old_values and (joins_alone or old is not None) else None
                forward(key, Change(joined, joined_old, is_latest), max(timestamp, other_timestamp), headers)
            except FAILURES as error:
                failed(error, key)

        return process

    def view(self, host: Host) -> View:
        join = self._join()
        this_get, other_get = host.view(self.this_table).get, host.view(self.other_table).get
        needs_this, needs_other = self.kind in {"inner", "left"}, self.kind in {"inner", "right"}

        def get(key: Any) -> ValueAndTimestamp[Any] | None:
            this, this_timestamp = this_get(key) or _NO_ROW
            if this is None and needs_this:
                return None
            other, other_timestamp = other_get(key) or _NO_ROW
            if other is None and (needs_other or this is None):
                return None
            return dated(join(this, other), max(this_timestamp, other_timestamp))

        # The join of two versioned tables is not a versioned table.
        return View(get, unversioned(host.node), False)

    def _join(self) -> Callable[[Any, Any], Any]:
        """Return the joiner with this side's row as its first argument."""
        joiner = self.joiner
        return (lambda this, other: joiner(other, this)) if self.reversed else joiner


@dataclass(frozen=True, slots=True)
class TableJoinMerger(TableOperator):
    """The joined table: merges the changes from both sides."""

    this_side: str
    other_side: str
    store: str | None
    send_old_values: bool

    def bind(self, host: Host, forward: Process) -> Process:
        return self._passing(forward) if self.store is None else self._keeping(host, self.store, forward)

    def view(self, host: Host) -> View:
        return host.view(self.this_side) if self.store is None else stored_view(host, self.store)

    def _passing(self, forward: Process) -> Process:
        if self.send_old_values:
            return forward

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            forward(key, Change(change[0], None, change[2]), timestamp, headers)

        return process

    def _keeping(self, host: Host, store: str, forward: Process) -> Process:
        failed = host.failed
        keep = keeper(host, store, forward, self.send_old_values)
        # Without a cache, the old value is what the side computed; with one, what the store had.
        old_value = old_value_reader(host, store, self.send_old_values) if host.spec(store).cached else None

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                old = change[1] if old_value is None else old_value(key)
                keep(key, change[0], old, timestamp, headers, timestamp)
            except FAILURES as error:
                failed(error, key)

        return process
