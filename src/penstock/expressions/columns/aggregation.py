"""Aggregates over columns: the aggregates of many keys with all records of an epoch added, or `DoubtError`.

A result is that of adding one record after the other, in order, to what the key had before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, NamedTuple

import msgspec
import numpy as np

from penstock.expressions.aggregation import initializer
from penstock.expressions.columns.evaluation import evaluate, is_supported
from penstock.expressions.columns.frames import Frame
from penstock.expressions.columns.vectors import DoubtError, Vector, as_floats, bounds
from penstock.expressions.nodes import Aggregates, Function, Node
from penstock.expressions.types import FIRST_INT64, FLOAT, INT, LAST_INT64, NUMBER, Kind, fields_of

_KINDS: dict[type | None, tuple[Kind | None, ...]] = {int: (None, NUMBER, INT), float: (None, NUMBER, FLOAT)}
"""The kinds of fields that keep a number as it is."""


class Groups(NamedTuple):
    """The group of each record, by its number, and how many groups there are."""

    numbers: Any
    size: int


class Operand(NamedTuple):
    """What an aggregate adds: the values that are not null, in order, with their groups."""

    values: Vector
    groups: Any
    size: int

    @property
    def sizes(self) -> Any:
        """How many values each group has."""
        return np.bincount(self.groups, minlength=self.size)


def can_fold(node: Aggregates | None) -> bool:
    """Whether aggregates can be computed at all; what records have may still raise `DoubtError`."""
    if node is None:
        return True
    if node.into is not None and not _is_plain(node.into):
        return False
    if not all(part.function in _FOLDS for _, part in node.fields):
        return False
    kinds = _kinds(node)
    counts = [name for name, part in node.fields if part.function is Function.COUNT]
    return all(is_supported(part) for each in node.parts for part in each.parts) and all(
        kinds[name] in (None, INT, NUMBER) for name in counts
    )


def fold(node: Aggregates | None, frame: Frame, groups: Groups, before: Sequence[list[Any]]) -> list[list[Any]]:
    """Return the results by field, each as a list by group; `before` has those of earlier epochs, see `initials`.

    Without aggregates there is one result: the number of records.
    """
    if node is None:
        return [_counted(before[0], np.bincount(groups.numbers, minlength=groups.size))]
    kinds, operands = _kinds(node), dict[Node, Operand]()
    results = []
    for (name, part), old in zip(node.fields, before, strict=True):
        if part.operand is None:
            results.append(_counted(old, np.bincount(groups.numbers, minlength=groups.size)))
            continue
        operand = operands.get(part.operand)
        if operand is None:
            operand = operands[part.operand] = _operand(evaluate(part.operand, frame), groups)
        results.append(_FOLDS[part.function](operand, kinds[name], old))
    return results


def _is_plain(into: type) -> bool:
    """Whether an object of a class is nothing but its fields, so that it does not matter how many were created on the way."""
    own = [kind for kind in into.__mro__ if kind not in (object, msgspec.Struct)]
    if any(name in vars(kind) for kind in own for name in ("__post_init__", "__new__", "__getattribute__", "__getattr__")):
        return False
    if issubclass(into, msgspec.Struct):
        return not any("__init__" in vars(kind) for kind in own)
    parameters = vars(into).get("__dataclass_params__")
    return parameters is not None and parameters.init and (parameters.frozen or into.__setattr__ is object.__setattr__)


def _kinds(node: Aggregates) -> dict[str, Kind | None]:
    fields = {} if node.into is None else fields_of(node.into) or {}
    return {name: fields[name].kind if name in fields else None for name, _ in node.fields}


def initials(node: Aggregates) -> list[Any]:
    """Return what each aggregate is before the first record."""
    first = initializer(node)()
    return [first[name] if node.into is None else getattr(first, name) for name, _ in node.fields]


def _operand(found: Vector, groups: Groups) -> Operand:
    if found.kind is None:
        none = np.zeros(0, np.int64)
        return Operand(Vector(None, none), none, groups.size)
    numbers = groups.numbers if found.valid is None else groups.numbers[found.valid]
    return Operand(Vector(found.kind, found.known), numbers, groups.size)


def _counted(old: list[Any], sizes: Any) -> list[Any]:
    if set(map(type, old)) != {int}:
        raise DoubtError("a count that is no integer")
    results: list[Any] = (np.array(old, np.int64) + sizes).tolist()
    return results


def _count(operand: Operand, kind: Kind | None, old: list[Any]) -> list[Any]:
    return _counted(old, operand.sizes)


def _sum(operand: Operand, kind: Kind | None, old: list[Any]) -> list[Any]:
    values = operand.values
    if values.kind is None:
        return old
    if kind == FLOAT and values.kind is int:
        values = as_floats(values)
    if kind not in _KINDS.get(values.kind, ()):
        raise DoubtError("a sum of another type")
    is_new = operand.sizes > 0
    changed = old if is_new.all() else [each for each, changes in zip(old, is_new.tolist(), strict=True) if changes]
    types = set(map(type, changed))
    if values.kind is int:
        if not types <= {int}:
            raise DoubtError("a sum of integers and others")
        _refuse_overflow(changed, values)
    elif not types <= {int, float}:
        raise DoubtError("a sum of floats and others")
    totals = np.zeros(operand.size, np.int64 if values.kind is int else np.float64)
    totals[is_new] = changed
    with np.errstate(all="ignore"):
        np.add.at(totals, operand.groups, values.values)  # one after the other, as floats must be added
    if values.kind is float and not np.isfinite(totals).all():
        raise DoubtError("a sum that cannot be kept")
    return _chosen(is_new, totals.tolist(), old)


def _refuse_overflow(old: list[int], values: Vector) -> None:
    """Raise if a sum might leave 64 bits, even if later values would bring it back."""
    low, high = bounds(values)
    size = len(values.values)
    if min(old, default=0) + min(low, 0) * size < FIRST_INT64 or max(old, default=0) + max(high, 0) * size > LAST_INT64:
        raise DoubtError("possibly a sum of more than 64 bits")


def _extreme(reduce: Any, start: dict[type, Any], better: Callable[[Any, Any], bool]) -> Callable[..., list[Any]]:
    def fold(operand: Operand, kind: Kind | None, old: list[Any]) -> list[Any]:
        values = _kept(operand.values, kind, skips_nan=True)
        if values.kind is None:
            return old
        numbers = operand.groups if values.valid is None else operand.groups[values.valid]
        known = values.known
        is_new = np.bincount(numbers, minlength=operand.size) > 0
        if values.kind is str:
            return _extreme_text(numbers, known, old, better)
        if values.kind is bool or _have_negative_zero(known):
            raise DoubtError("values that are equal but not the same")
        if not set(map(type, old)) <= {values.kind, NoneType}:
            raise DoubtError("values that are equal but not the same")
        first = start[values.kind]
        best = np.array([first if each is None else each for each in old], known.dtype)
        if _have_negative_zero(best):
            raise DoubtError("values that are equal but not the same")
        reduce.at(best, numbers, known)
        return _chosen(is_new, best.tolist(), old)

    return fold


def _extreme_text(groups: Any, texts: Any, old: list[Any], better: Callable[[Any, Any], bool]) -> list[Any]:
    if not set(map(type, old)) <= {str, NoneType}:
        raise DoubtError("text among others")
    best = old.copy()
    for group, text in zip(groups.tolist(), texts.tolist(), strict=True):
        known = best[group]
        if known is None or better(text, known):
            best[group] = text
    return best


def _first(operand: Operand, kind: Kind | None, old: list[Any]) -> list[Any]:
    return _at(operand, kind, [each is None for each in old], old, np.minimum, LAST_INT64)


def _last(operand: Operand, kind: Kind | None, old: list[Any]) -> list[Any]:
    return _at(operand, kind, [True] * len(old), old, np.maximum, -1)


def _at(operand: Operand, kind: Kind | None, may_change: list[bool], old: list[Any], choose: Any, start: int) -> list[Any]:
    """Return the values at the first or the last position of each group, where it may change."""
    values = _kept(operand.values, kind, skips_nan=False)
    if values.kind is None:
        return old
    positions = np.full(operand.size, start, np.int64)
    choose.at(positions, operand.groups, np.arange(len(operand.groups)))
    is_new = (operand.sizes > 0) & np.array(may_change, bool)
    found = np.empty(operand.size, values.values.dtype)
    found[is_new] = values.values[positions[is_new]]
    return _chosen(is_new, found.tolist(), old)


def _kept(values: Vector, kind: Kind | None, *, skips_nan: bool) -> Vector:
    """Return values as a field of this kind keeps them; raise if it might refuse one."""
    if values.kind is None:
        return values
    if kind == FLOAT and values.kind is int:
        values = as_floats(values)
    accepted = kind is None or kind.of is values.kind or (kind == NUMBER and values.kind in (int, float))
    if not accepted:
        raise DoubtError("a result of another type")
    if values.kind is float:
        is_nan = np.isnan(values.values)
        if skips_nan and is_nan.any():
            values = values._replace(valid=~is_nan)
        if not np.isfinite(values.known).all():
            raise DoubtError("a result that cannot be kept")
    return values


def _have_negative_zero(values: Any) -> bool:
    return values.dtype == np.float64 and bool((np.signbit(values) & (values == 0)).any())


def _chosen(is_new: Any, new: list[Any], old: list[Any]) -> list[Any]:
    """Return new results where there are any, and old ones elsewhere, which keep their type."""
    if is_new.all():
        return new
    return [one if chosen else other for one, other, chosen in zip(new, old, is_new.tolist(), strict=True)]


_FOLDS: dict[Function, Callable[[Operand, Kind | None, list[Any]], list[Any]]] = {
    Function.COUNT: _count,
    Function.SUM: _sum,
    Function.MIN: _extreme(np.minimum, {int: LAST_INT64, float: np.inf}, lambda new, old: new < old),
    Function.MAX: _extreme(np.maximum, {int: FIRST_INT64, float: -np.inf}, lambda new, old: new > old),
    Function.FIRST: _first,
    Function.LAST: _last,
}
