"""Makes the handles that verbs return, for all of them: it imports the handles, and none of them imports it."""

from __future__ import annotations

from typing import Any

from penstock.dsl.grouped import KGroupedStream
from penstock.dsl.grouped_tables import KGroupedTable
from penstock.dsl.place import Place
from penstock.dsl.side_outputs import Sender
from penstock.dsl.streams import KStream
from penstock.dsl.table_drafts import TableDraft
from penstock.dsl.tables import KTable


class HandleFactory:
    """What a draft makes handles with."""

    def stream(self, place: Place, sender: Sender | None = None) -> KStream[Any, Any]:
        """A stream."""
        return KStream(place, sender)

    def table(self, place: Place, table: TableDraft, queryable: str | None) -> KTable[Any, Any]:
        """A table."""
        return KTable(place, table, queryable)

    def grouped_stream(self, place: Place, name: str | None) -> KGroupedStream[Any, Any]:
        """A grouped stream."""
        return KGroupedStream(place, name)

    def grouped_table(self, place: Place, name: str | None) -> KGroupedTable[Any, Any]:
        """A grouped table."""
        return KGroupedTable(place, name)
