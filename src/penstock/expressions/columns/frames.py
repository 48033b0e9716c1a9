"""The values of many records as columns: what expressions read from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.expressions.columns.vectors import DoubtError, Vector, declared, nulls, vector_of

Path = tuple[str, ...]
"""Where a field is in a value; the value itself without any segment."""


class Frame:
    """The columns of some records: as read, in which case they get their types when they are used, or computed.

    `objects` has arrays of Python's objects by path, all that any expression will ask for; None if the columns were computed:
    then a field that is not there is null, as in a dict. `absent` says which records have no value, None if all have one.
    """

    __slots__ = ("_absent", "_objects", "_vectors", "size")

    def __init__(self, size: int, objects: Mapping[Path, Any] | None, vectors: Mapping[Path, Vector], absent: Any = None) -> None:
        self.size: int = size
        self._absent = absent
        self._objects = objects
        self._vectors = dict(vectors)

    def column(self, path: Path, of: type | None = None) -> Vector:
        """Return a column; `of` is its type, if that is declared."""
        found = self._vectors.get(path)
        if found is not None:
            return declared(found, of)
        if self._objects is None:
            return self._missing(path)
        found = vector_of(self._objects[path], of)
        if of is None:
            self._vectors[path] = found
        return found

    def _missing(self, path: Path) -> Vector:
        if not path or any(known[: len(path)] == path or path[: len(known)] == known for known in self._vectors):
            raise DoubtError("a value that is no column")
        return nulls(self.size)

    def where(self, mask: Any) -> Frame:
        """Return the columns of some of the records: those where a mask is true, or those at some positions."""
        objects, vectors = self._objects, {path: vector.where(mask) for path, vector in self._vectors.items()}
        if objects is not None:
            objects = {path: array[mask] for path, array in objects.items() if path not in vectors}
        size = int(mask.sum()) if mask.dtype == bool else len(mask)
        return Frame(size, objects, vectors, None if self._absent is None else self._absent[mask])

    @property
    def have_value(self) -> Any:
        """For each record, whether it has a value."""
        if () in self._vectors or (self._objects is not None and () in self._objects):
            return self.column(()).are_known
        return np.ones(self.size, bool) if self._absent is None else ~self._absent
