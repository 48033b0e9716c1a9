"""What later verbs may still require of a table: to send old values, to be kept in a store.

The rules, and when each is applied, are those of Kafka Streams: they decide, for example, whether a filter sends a tombstone
for a value that it never forwarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.dsl.draft import Draft, Write
from penstock.dsl.place import Place
from penstock.dsl.stores import Materialized
from penstock.operators.tables import TableSource
from penstock.topology import Line, ProcessorNode, Topology


class TableDraft(Protocol):
    """A table as the verbs below it see it in the draft."""

    sends_old_values: bool

    def send_old_values(self, force: bool) -> bool:
        """Require old values, without `force` only if that needs no new store; return whether they are sent."""

    def view_stores(self) -> list[str]:
        """Return the stores that a lookup in this table reads; a source table is kept from now on."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table at its place in the draft, and the name to query it by; None if it has none."""

    place: Place
    table: TableDraft
    queryable: str | None = None


@dataclass(eq=False, slots=True)
class SourceDraft:
    """A table read from a topic, a stream or the answers of a foreign-key join; kept only if needed."""

    store: Materialized
    is_kept: bool
    sends_old_values: bool = False

    def send_old_values(self, force: bool) -> bool:
        """See `TableDraft`; old values come from the store."""
        if not force and not self.is_kept:
            return False
        self.is_kept = self.sends_old_values = True
        return True

    def view_stores(self) -> list[str]:
        """See `TableDraft`; a lookup needs the store."""
        self.is_kept = True
        return [self.store.store_name]


@dataclass(eq=False, slots=True)
class AggregateDraft:
    """An aggregate, which is always kept; the drafts of a cogroup share a store."""

    store_name: str
    sends_old_values: bool = False

    def send_old_values(self, force: bool) -> bool:
        """See `TableDraft`; the store always exists."""
        self.sends_old_values = True
        return True

    def view_stores(self) -> list[str]:
        """See `TableDraft`; it is the aggregate's store."""
        return [self.store_name]


@dataclass(eq=False, slots=True)
class DerivedDraft:
    """A table computed from another one; kept only if it has a named store."""

    parent: TableDraft
    store: Materialized | None
    sends_old_values: bool = False

    def send_old_values(self, force: bool) -> bool:
        """See `TableDraft`; they come from its own store, or are derived from the parent's."""
        if self.store is not None or self.parent.send_old_values(force):
            self.sends_old_values = True
        return self.sends_old_values

    def view_stores(self) -> list[str]:
        """See `TableDraft`; its own store, or those of the parent."""
        return [self.store.store_name] if self.store is not None else self.parent.view_stores()


@dataclass(eq=False, slots=True)
class SuppressDraft:
    """A suppressed table: its parent without the changes it holds back."""

    parent: TableDraft
    buffer: str
    sends_old_values: bool = False

    def send_old_values(self, force: bool) -> bool:
        """See `TableDraft`; they come from the parent."""
        self.sends_old_values = self.parent.send_old_values(force)
        return self.sends_old_values

    def view_stores(self) -> list[str]:
        """See `TableDraft`; its buffer and the stores of the parent."""
        return [self.buffer, *self.parent.view_stores()]


@dataclass(eq=False, slots=True)
class MergeDraft:
    """Several tables merged into one: the two sides of a join, or the parts of a cogroup."""

    parents: Sequence[TableDraft]
    store: Materialized | None = None
    store_name: str | None = None
    sends_old_values: bool = False

    def send_old_values(self, force: bool) -> bool:
        """See `TableDraft`; they come from all parents."""
        for parent in self.parents:
            parent.send_old_values(force=True)
        self.sends_old_values = True
        return True

    def view_stores(self) -> list[str]:
        """See `TableDraft`; its own store, or those of all parents."""
        if self.store is not None:
            return [self.store.store_name]
        if self.store_name is not None:
            return [self.store_name]
        return list(dict.fromkeys(name for parent in self.parents for name in parent.view_stores()))


def source_table_write(draft: Draft, name: str, table: SourceDraft, line: Line) -> Write:
    """Return what writes the node that turns records into a table's changes, with its store if a verb needs it."""

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        store = table.store.store_name if table.is_kept else None
        topology.add_node(ProcessorNode(name, parents, TableSource(store, table.sends_old_values), (), line))
        if table.is_kept:
            topology.add_state_store(table.store.table_spec(draft), name)

    return write
