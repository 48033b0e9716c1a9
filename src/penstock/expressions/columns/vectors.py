"""Many values of one type as an array. Values that differ in type are no vector: rows compute them."""

from __future__ import annotations

from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from penstock.expressions.types import FIRST_INT64, LAST_INT64


class DoubtError(Exception):
    """Columns cannot be sure to give what rows give, so rows compute it."""


class Vector(NamedTuple):
    """Values of one type: bool, int of 64 bits, float or str; `kind` is None if all of them are null.

    `valid` says which are not null, None if none is. What `values` has in the place of a null means nothing.
    """

    kind: type | None
    values: Any
    valid: Any = None

    def where(self, mask: Any) -> Vector:
        """Return some of the values: those where a mask is true, or those at some positions."""
        return Vector(self.kind, self.values[mask], None if self.valid is None else self.valid[mask])

    @property
    def known(self) -> Any:
        """The values that are not null."""
        return self.values if self.valid is None else self.values[self.valid]

    @property
    def are_known(self) -> Any:
        """For each value, whether it is not null."""
        return np.ones(len(self.values), bool) if self.valid is None else self.valid

    def objects(self) -> list[Any]:
        """Return the values as Python's, with None for null."""
        found: list[Any] = self.values.tolist()
        if self.valid is None:
            return found
        return [value if is_known else None for value, is_known in zip(found, self.valid.tolist(), strict=True)]


DTYPES: dict[type | None, Any] = {bool: np.bool_, int: np.int64, float: np.float64, str: np.object_}
_EXACT = 2**53
"""Integers up to this one are floats, too."""


def vector_of(objects: Any, of: type | None = None) -> Vector:
    """Return an array of Python's objects as a vector; `of` is their type, if it is declared."""
    given = objects.tolist()
    kinds = set(map(type, given))
    valid = None
    if NoneType in kinds:
        kinds.discard(NoneType)
        valid = np.array([each is not None for each in given])
        if not kinds:
            return nulls(len(given))
    if of is float and kinds == {int, float}:
        kinds = {float}
        _refuse_large([each for each in given if type(each) is int])
    if len(kinds) != 1:
        raise DoubtError("values of several types")
    [kind] = kinds or {of or bool}
    if kind not in DTYPES:
        raise DoubtError(f"values of type {kind.__name__}")
    return declared(Vector(kind, _array(objects, kind, valid), valid), of)


def declared(vector: Vector, of: type | None) -> Vector:
    """Return a vector as values of a declared type."""
    if of is None or vector.kind is of or vector.kind is None:
        return vector
    if of is float and vector.kind is int:
        return as_floats(vector)
    raise DoubtError("another type than declared")


def _array(objects: Any, kind: type, valid: Any) -> Any:
    if kind is str:
        return objects
    if valid is None:
        return _converted(objects, kind)
    values = np.zeros(len(objects), DTYPES[kind])
    values[valid] = _converted(objects[valid], kind)
    return values


def _converted(objects: Any, kind: type) -> Any:
    try:
        return objects.astype(DTYPES[kind])
    except OverflowError as error:
        raise DoubtError("an integer of more than 64 bits") from error


def _refuse_large(integers: list[int]) -> None:
    if min(integers) < FIRST_INT64 or max(integers) > LAST_INT64:
        raise DoubtError("an integer of more than 64 bits")


def nulls(size: int) -> Vector:
    """Return a vector of nulls."""
    return Vector(None, np.zeros(size, bool), np.zeros(size, bool))


def constant(value: bool | float | str, size: int) -> Vector:
    """Return the same value many times."""
    kind = type(value)
    if isinstance(value, int):
        _refuse_large([value])
    one = np.empty(1, DTYPES[kind])
    one[0] = value
    return Vector(kind, np.broadcast_to(one, (size,)))


def bounds(vector: Vector) -> tuple[int, int]:
    """Return the lowest and the highest integer."""
    known = vector.known
    return (int(known.min()), int(known.max())) if len(known) else (0, 0)


def as_floats(vector: Vector) -> Vector:
    """Return numbers as floats."""
    return vector if vector.kind is float else Vector(float, vector.values.astype(np.float64), vector.valid)


def as_exact_floats(vector: Vector) -> Vector:
    """Return numbers as floats; raise if an integer would be rounded."""
    if vector.kind is int:
        low, high = bounds(vector)
        if low < -_EXACT or high > _EXACT:
            raise DoubtError("an integer that is no float")
    return as_floats(vector)
