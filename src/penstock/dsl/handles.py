"""The kinds of handles that a join tells apart. `KStream`, `KTable` and `GlobalKTable` are of one each, with verbs besides.

Joins are written below the verbs, and know no more of what they are given than this.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.dsl.place import Place
from penstock.dsl.table_drafts import TableDraft
from penstock.serdes import Serde
from penstock.topology import Line


class StreamHandle:
    """A stream at a place of the draft."""

    __slots__ = ()

    _place: Place

    @abstractmethod
    def _repartitioned(self, prefix: str, key: Serde[Any] | None, value: Serde[Any] | None, line: Line) -> StreamHandle:
        """The same stream behind an exchange."""


class TableHandle:
    """A table at a place of the draft."""

    __slots__ = ()

    _place: Place
    _table: TableDraft


class GlobalTableHandle:
    """A table that every lane sees whole; it has no place, only its store."""

    __slots__ = ()

    store_name: str
