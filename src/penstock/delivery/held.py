"""Values as columns of Parquet can hold them, and which of them fit into one column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, time
from decimal import Decimal
from typing import Any

_SCALARS = {str, bytes, bool, float}

Place = tuple[str, ...]
"""Where a value is: the name of its column, and of the fields within it; the elements of a list are one place."""

_ELEMENT = "[]"
_EXACT_IN_FLOATS = 2**53
_LONGEST = 2**63
_TOGETHER = (frozenset({"int", "float"}), frozenset({"int", "long"}))
"""Kinds that one column holds without changing a value."""


class Kinds:
    """The kinds of values that were seen at each place."""

    def __init__(self) -> None:
        self._seen: dict[Place, frozenset[object]] = {}

    def held(self, value: Any, *place: str) -> Any:
        """Return a value as a column can hold it, and note its kind.

        An object without fields, which Parquet does not know, becomes null; an integer of more than 64 bits becomes a decimal.
        """
        if value is None:
            return None
        if isinstance(value, Mapping):
            held = {str(name): self.held(field, *place, str(name)) for name, field in value.items()}
            self._note(place, "object")
            return held or None
        if isinstance(value, list | tuple):
            self._note(place, "list")
            return [self.held(element, *place, _ELEMENT) for element in value]
        kind = _kind(value)
        self._note(place, kind)
        return Decimal(value) if kind is Decimal and isinstance(value, int) else value

    def conflict(self) -> str | None:
        """Return the first place whose values do not fit into one column; None if all do."""
        return next((".".join(place) for place, kinds in self._seen.items() if not _fit(kinds)), None)

    def with_all(self, others: Kinds) -> Kinds | None:
        """Return the kinds of both, None if they do not fit into the same columns."""
        seen = dict(self._seen)
        for place, kinds in others._seen.items():
            known = seen.get(place)
            if known is None:
                seen[place] = kinds
            elif not kinds <= known:
                if not _fit(both := known | kinds):
                    return None
                seen[place] = both
        together = Kinds()
        together._seen = seen
        return together

    def _note(self, place: Place, kind: object) -> None:
        known = self._seen.get(place)
        if known is None:
            self._seen[place] = frozenset((kind,))
        elif kind not in known:
            self._seen[place] = known | {kind}


def fit_as_they_are(values: Iterable[Any]) -> bool:
    """Whether values certainly fit into one column: for most columns, this is all there is to do."""
    values = [value for value in values if value is not None]
    types = set(map(type, values))
    if types <= {int, float} and int in types:
        numbers = values if len(types) == 1 else [value for value in values if type(value) is int]
        most = _LONGEST - 1 if len(types) == 1 else _EXACT_IN_FLOATS
        return -most <= min(numbers) and max(numbers) <= most
    return not types or (len(types) == 1 and types < _SCALARS)


def _fit(kinds: frozenset[object]) -> bool:
    return len(kinds) == 1 or any(kinds <= each for each in _TOGETHER)


def _kind(value: Any) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        size = abs(value)
        return "int" if size <= _EXACT_IN_FLOATS else "long" if size < _LONGEST else Decimal
    if isinstance(value, float):
        return "float"
    if isinstance(value, datetime | time):
        return type(value), value.tzinfo is None
    return type(value)
