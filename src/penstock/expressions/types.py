"""What is known about types while a topology is declared: the fields of a class, and the kind of value of an expression."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from penstock.errors import TopologyError
from penstock.errors.lines import user_line
from penstock.expressions.nodes import (
    Arithmetic,
    Column,
    Comparison,
    IsNull,
    Literal,
    Logic,
    Negative,
    Node,
    Not,
    Required,
    Side,
    Struct,
)

SCALARS: tuple[type, ...] = (bool, int, float, str)
"""The types that a column may be declared as, and that aggregates work on."""

FIRST_INT64, LAST_INT64 = -(2**63), 2**63 - 1
"""The smallest and the largest integer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value, with the name of its type for messages; `of` is None for `int | float`, and for all that is no scalar."""

    name: str
    of: type | None = None
    is_number: bool = False

    @property
    def is_scalar(self) -> bool:
        """Whether it is one of the kinds that aggregates work on."""
        return self.of is not None or self.is_number


BOOL, TEXT = Kind("bool", bool), Kind("str", str)
INT, FLOAT = Kind("int", int, is_number=True), Kind("float", float, is_number=True)
NUMBER = Kind("int | float", is_number=True)
_KINDS: dict[Any, Kind] = {bool: BOOL, int: INT, float: FLOAT, str: TEXT}


class FieldType(NamedTuple):
    """The declared type of a field: its kind, None if that can be anything, and whether it may be None."""

    kind: Kind | None
    takes_none: bool


Records = Mapping[Side, Any]
"""The classes of the records that columns are read from, None where unknown."""


def fields_of(of: Any) -> Mapping[str, FieldType] | None:
    """Return the fields of a dataclass, Struct, Pydantic model or typed dict; None for any other type."""
    names = field_names(of)
    if names is None:
        return None
    try:
        hints = get_type_hints(of)
    except (NameError, TypeError):  # a class within a function may name others that cannot be found from here
        hints = {}
    return {name: field_type(hints.get(name, Any)) for name in names}


def field_names(of: Any) -> Collection[str] | None:
    """Return only the names of those fields."""
    of = get_origin(of) or of
    if not isinstance(of, type):
        return None
    if dataclasses.is_dataclass(of):
        return [each.name for each in dataclasses.fields(of)]
    if issubclass(of, msgspec.Struct):
        return of.__struct_fields__
    if hasattr(of, "__pydantic_validator__"):
        return list(getattr(of, "model_fields", ()))
    return list(of.__annotations__) if is_typeddict(of) else None


def field_type(hint: Any) -> FieldType:
    """Return what a type hint says."""
    if hint in (Any, object):
        return FieldType(None, takes_none=True)
    if get_origin(hint) not in (Union, types.UnionType):
        return FieldType(_KINDS.get(hint) or Kind(_name(hint)), takes_none=hint in (None, types.NoneType))
    members = [member for member in get_args(hint) if member is not types.NoneType]
    takes_none = len(members) < len(get_args(hint))
    if len(members) == 1:
        return FieldType(field_type(members[0]).kind, takes_none)
    return FieldType(NUMBER if set(members) == {int, float} else Kind(_name(hint)), takes_none)


def kind_of(node: Node, records: Records | None = None) -> Kind | None:
    """Return the kind of an expression's value; None if it is unknown."""
    if isinstance(node, Literal):
        return _KINDS[type(node.value)]
    if isinstance(node, Column):
        known = _column_type(node, records)
        return _KINDS[node.of] if node.of is not None else known.kind
    if isinstance(node, (Comparison, Logic, Not, IsNull)):
        return BOOL
    if isinstance(node, (Required, Negative)):
        kind = kind_of(node.operand, records)
        return NUMBER if kind is None and isinstance(node, Negative) else kind
    if isinstance(node, Arithmetic):
        return _result(node.sign, kind_of(node.left, records), kind_of(node.right, records))
    return Kind("dict") if isinstance(node, Struct) else None


def check(node: Node, records: Records, verb: str, line: object) -> None:
    """Reject an expression that cannot be computed from these records."""
    for part in node.walk():
        if isinstance(part, Column):
            _check_column(part, records, verb, line)
        elif isinstance(part, (Arithmetic, Negative)):
            for number in part.parts:
                _check_kind(number, records, "numbers", lambda kind: kind.is_number, line)
        elif isinstance(part, (Logic, Not)):
            for condition in part.parts:
                _check_kind(condition, records, "conditions", lambda kind: kind == BOOL, line)
        elif isinstance(part, Comparison):
            _check_comparison(part, records, line)


def class_of_fields(verb: str, into: Any, given: Collection[str]) -> Any:
    """Return the class to create from these fields, None for a dict; reject one that cannot be created from them."""
    if into is None or into is dict:
        return None
    names = field_names(into)
    if names is None or not (dataclasses.is_dataclass(into) or issubclass(into, msgspec.Struct)):
        raise TopologyError(f"{verb}: into= is a dataclass, a msgspec.Struct or dict, not {into!r} ({user_line()}).")
    unknown = [name for name in given if name not in names]
    if unknown:
        raise TopologyError(f"{into.__name__} has no field {unknown[0]!r} ({user_line()}): its fields are {', '.join(names)}.")
    try:
        inspect.signature(into).bind(**dict.fromkeys(given))
    except TypeError as error:
        raise TopologyError(f"{verb} cannot create {into.__name__} from {', '.join(given)} ({user_line()}): {error}.") from None
    return into


def _column_type(node: Column, records: Records | None) -> FieldType:
    """Return the type of a column as far as the record's class tells; that the field exists is checked elsewhere."""
    of, found = (None if records is None else records.get(node.side)), FieldType(None, takes_none=True)
    if not node.path:
        return found if of is None else field_type(of)
    for depth, name in enumerate(node.path, start=1):
        fields = fields_of(of)
        if fields is None or name not in fields:
            return FieldType(None, takes_none=True)
        found = fields[name]
        if depth < len(node.path):
            of = _class_within(of, name)
    return found


def _check_column(node: Column, records: Records, verb: str, line: object) -> None:
    if node.side not in records:
        sides = " and ".join(f"{side.value}(...)" for side in records)
        raise TopologyError(f"{verb} computes with {sides}, so it cannot use {node.describe()} ({line}).")
    of = records[node.side]
    for name in node.path:
        fields = fields_of(of)
        if fields is None:
            if of in SCALARS or of is bytes:
                raise TopologyError(f"{node.describe()} needs a value with fields, but the value is {_name(of)} ({line}).")
            break
        if name not in fields:
            known = ", ".join(fields)
            raise TopologyError(f"{_name(of)} has no field {name!r}, which {node.describe()} reads ({line}); it has {known}.")
        of = _class_within(of, name)
    known_kind = _column_type(node, records).kind
    if node.of is not None and known_kind is not None and known_kind.of is not node.of:
        raise TopologyError(f"{node.describe()} is declared as {node.of.__name__}, but it is {known_kind.name} ({line}).")


def _class_within(of: Any, name: str) -> Any:
    """Return the class of a field's values; None if it is unknown."""
    try:
        hint = get_type_hints(of).get(name)
    except (NameError, TypeError):
        return None
    members = [member for member in get_args(hint) if member is not types.NoneType]
    if get_origin(hint) in (Union, types.UnionType) and len(members) == 1:
        hint = members[0]
    return hint if isinstance(hint, type) else None


def _check_kind(node: Node, records: Records, needed: str, fits: Any, line: object) -> None:
    kind = kind_of(node, records)
    if kind is not None and not fits(kind):
        raise TopologyError(f"{node.describe()} is {kind.name}, where an expression needs {needed} ({line}).")


def _check_comparison(node: Comparison, records: Records, line: object) -> None:
    one, other = kind_of(node.left, records), kind_of(node.right, records)
    if one is None or other is None or one == other or (one.is_number and other.is_number):
        return
    if one.is_scalar and other.is_scalar:
        raise TopologyError(f"{node.describe()} compares {one.name} with {other.name} ({line}).")


def _result(sign: str, one: Kind | None, other: Kind | None) -> Kind:
    if sign == "/" or FLOAT in (one, other):
        return FLOAT
    return INT if one == other == INT else NUMBER


def _name(of: Any) -> str:
    return of.__name__ if isinstance(of, type) and get_origin(of) is None else str(of)
