"""What later verbs may still ask of a table that was declared earlier: to send old values, to be kept in a store.

The rules, and the moments at which they are applied, are Kafka Streams': whether a filter sends a tombstone for a value
it never let through depends on them.
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
    """A table as the tables and joins below it see it while declaring."""

    sends_old_values: bool

    def send_old_values(self, force: bool) -> bool:
        """Ask for old values; without `force` only if no store has to be made for it."""

    def view_stores(self) -> list[str]:
        """The stores that reading this table touches; a source table gets its store by being asked."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table stands in the draft, and the name it can be queried by; None if it has none."""

    place: Place
    table: TableDraft
    queryable: str | None = None


@dataclass(eq=False, slots=True)
class SourceDraft:
    """A table read from a topic, from a stream or from the answers of a foreign-key join; kept only if needed."""

    store: Materialized
    is_kept: bool
    sends_old_values: bool = False

    def send_old_values(self, force: bool) -> bool:
        """Old values come from the store."""
        if not force and not self.is_kept:
            return False
        self.is_kept = self.sends_old_values = True
        return True

    def view_stores(self) -> list[str]:
        """Reading needs the store."""
        self.is_kept = True
        return [self.store.store_name]


@dataclass(eq=False, slots=True)
class AggregateDraft:
    """A table that is an aggregate, always kept; several drafts share a store in a cogroup."""

    store_name: str
    sends_old_values: bool = False

    def send_old_values(self, force: bool) -> bool:
        """The store is there."""
        self.sends_old_values = True
        return True

    def view_stores(self) -> list[str]:
        """The aggregate's store."""
        return [self.store_name]


@dataclass(eq=False, slots=True)
class DerivedDraft:
    """A table computed from another one, kept only if it was given a named store."""

    parent: TableDraft
    store: Materialized | None
    sends_old_values: bool = False

    def send_old_values(self, force: bool) -> bool:
        """From the own store, or derived from the parent's old values."""
        if self.store is not None or self.parent.send_old_values(force):
            self.sends_old_values = True
        return self.sends_old_values

    def view_stores(self) -> list[str]:
        """The own store, or those of the parent."""
        return [self.store.store_name] if self.store is not None else self.parent.view_stores()


@dataclass(eq=False, slots=True)
class SuppressDraft:
    """A suppressed table: it passes on what its parent knows, less what it holds back."""

    parent: TableDraft
    buffer: str
    sends_old_values: bool = False

    def send_old_values(self, force: bool) -> bool:
        """From the parent."""
        self.sends_old_values = self.parent.send_old_values(force)
        return self.sends_old_values

    def view_stores(self) -> list[str]:
        """Its buffer, and those of the parent."""
        return [self.buffer, *self.parent.view_stores()]


@dataclass(eq=False, slots=True)
class MergeDraft:
    """Several tables in one node: the two sides of a join, or the parts of a cogroup."""

    parents: Sequence[TableDraft]
    store: Materialized | None = None
    store_name: str | None = None
    sends_old_values: bool = False

    def send_old_values(self, force: bool) -> bool:
        """From both sides."""
        for parent in self.parents:
            parent.send_old_values(force=True)
        self.sends_old_values = True
        return True

    def view_stores(self) -> list[str]:
        """The own store, or those of both sides."""
        if self.store is not None:
            return [self.store.store_name]
        if self.store_name is not None:
            return [self.store_name]
        return list(dict.fromkeys(name for parent in self.parents for name in parent.view_stores()))


def source_table_write(draft: Draft, name: str, table: SourceDraft, line: Line) -> Write:
    """Writes the node that turns records into a table's changes, with its store if anybody came to need it."""

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        store = table.store.store_name if table.is_kept else None
        topology.add_node(ProcessorNode(name, parents, TableSource(store, table.sends_old_values), (), line))
        if table.is_kept:
            topology.add_state_store(table.store.table_spec(draft), name)

    return write
