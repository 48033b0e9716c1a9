"""How much a value may hold for its bytes: an Avro schema may have items without bytes, of which a record claims any number.

A registry's schemas are not the application's own: every record names the one it was written with. So one whose values could be
much larger than their bytes is refused: an array of nulls, a list that is linked by records of nulls, records that double at
every level without a field.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

VALUES_PER_BYTE = 8
"""More than any useful schema has: a value takes at least a byte, except for nulls and the records around other values."""

_MOST_WITHOUT_BYTES = 10_000
_LEAST_BYTES = {"null": 0, "float": 4, "double": 8}


class UnboundedError(ValueError):
    """A schema's values could be much larger than their bytes."""


def check_bounded(schema: Any, named: Mapping[str, Any]) -> None:
    """Raise for a parsed schema whose values are not bounded by their bytes; `named` are the schemas that it uses by name."""
    records = _Records(named)
    records.excess(schema)
    if _Items(named, records.recursive).excess(schema) > _MOST_WITHOUT_BYTES:
        raise UnboundedError("it has thousands of values without bytes")


class _Records:
    """How many values a schema's values may have beyond those that their bytes allow. Checks the records that contain themselves.

    `recursive` has what is known of those: within themselves they count as 0 first, which they must not exceed.
    """

    def __init__(self, named: Mapping[str, Any], recursive: Mapping[str, int] = MappingProxyType({})) -> None:
        self.recursive: dict[str, int] = dict(recursive)
        self._named = named
        self._known: dict[str, int] = {}
        self._open: set[str] = set()

    def excess(self, schema: Any) -> int:
        """Return the number of values minus those for the bytes, at worst; raise for items or levels that exceed them."""
        if isinstance(schema, list):  # a union: the number of the branch is a byte
            return max((self.excess(branch) for branch in schema), default=0) - VALUES_PER_BYTE
        if isinstance(schema, str):
            return self._of_record(self._named[schema]) if schema in self._named else _single(_LEAST_BYTES.get(schema, 1))
        kind = schema["type"]
        if kind == "array":
            self._check_items(self.excess(schema["items"]), "an array whose items have no bytes, or few for what they hold")
            return _single(1)
        if kind == "map":
            self._check_items(self.excess(schema["values"]) + _single(1), "a map whose values hold much more than their bytes")
            return _single(1)
        if kind == "fixed":
            return _single(int(schema["size"]))
        if kind == "enum":
            return _single(1)
        return self._of_record(schema) if "fields" in schema else self.excess(kind)

    def _of_record(self, record: Any) -> int:
        if "fields" not in record:
            return self.excess(record)
        name = record["name"]
        if name in self._open:
            return self.recursive.setdefault(name, 0)
        if name not in self._known:
            self._open.add(name)
            self._known[name] = 1 + sum(self.excess(field["type"]) for field in record["fields"])
            self._open.remove(name)
            if name in self.recursive:
                self.recursive[name] = self._known[name]
                if self._known[name] > 0:
                    raise UnboundedError(f"its record {name} contains itself, and holds much more than its bytes")
        return self._known[name]

    def _check_items(self, excess: int, what: str) -> None:
        """Accept all items: what those are that contain the record around them is not known yet."""


class _Items(_Records):
    """Checks the items of arrays and maps."""

    def _check_items(self, excess: int, what: str) -> None:
        if excess > 0:
            raise UnboundedError(f"it has {what}")


def _single(size: int) -> int:
    return 1 - VALUES_PER_BYTE * size
