"""Expressions in a draft: checked against what is known about the records, then in the form that an operator calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.dsl.place import Place
from penstock.errors import TopologyError
from penstock.expressions import Expression
from penstock.expressions.agg import Aggregate
from penstock.expressions.aggregation import STATES
from penstock.expressions.functions import Computed, Form
from penstock.expressions.nodes import Aggregates, Function, Logic, Node, Side, Struct
from penstock.expressions.types import (
    BOOL,
    FLOAT,
    INT,
    NUMBER,
    FieldType,
    Kind,
    Records,
    check,
    class_of_fields,
    fields_of,
    kind_of,
)
from penstock.records import OfPair
from penstock.serdes import Boolean, Bytes, Float64, Int64, Json, MsgPack, Serde, String, serde_of
from penstock.topology import Line
from penstock.topology.functions import checked, checked_on_record

Predicate = OfPair[Any, Any, Any] | Expression[bool]
"""A function of key and value, or of the record, or a condition."""

_PRIMITIVES: dict[type[Serde[Any]], type] = {Boolean: bool, Bytes: bytes, Float64: float, Int64: int, String: str}


def predicate(here: Place, given: tuple[Any, ...], verb: str, line: Line, *, of_table: bool = False) -> Callable[..., Any]:
    """Return a verb's predicate: a function, or one or several conditions that must all hold."""
    if not any(isinstance(each, Expression) for each in given):
        if len(given) != 1:
            raise TopologyError(f"{verb} takes one function, or any number of expressions ({line}).")
        function: Callable[..., Any] = (checked if of_table else checked_on_record)(given[0], "key, value", verb, line)
        return function
    nodes = [_node(each, verb, line) for each in given]
    for node in nodes:
        check(node, records_of(here), verb, line)
        kind = kind_of(node, records_of(here))
        if kind not in (None, BOOL):
            raise TopologyError(f"{verb} needs a condition, but {node.describe()} is {kind.name} ({line}).")
    whole = nodes[0]
    for node in nodes[1:]:
        whole = Logic("&", whole, node)
    return Computed(whole, Form.CONDITION)


def computed(given: Any, form: Form, records: Records, verb: str, line: Line, *, with_key: bool = False) -> Computed:
    """Return an expression that computes a value in the form that a verb calls."""
    if with_key:
        raise TopologyError(f"{verb} takes with_key= only with a function: an expression cannot use the key ({line}).")
    node = _node(given, verb, line)
    check(node, records, verb, line)
    return Computed(node, form)


def records_of(here: Place) -> Records:
    """Return the class of the values at a place, as far as it is known."""
    return {Side.VALUE: class_of(here.value)}


def records_of_join(left: Place, right: Place | None) -> Records:
    """Return the classes of the values of both sides of a join."""
    return {Side.LEFT: class_of(left.value), Side.RIGHT: None if right is None else class_of(right.value)}


def class_of(serde: Serde[Any] | None) -> Any:
    """Return the type that a serde reads; None if it is unknown, or can be any."""
    if isinstance(serde, (Json, MsgPack)):
        return None if serde.of is Any else serde.of
    return _PRIMITIVES.get(type(serde)) if serde is not None else None


def serde_for(found: Computed, records: Records, here: Place) -> Serde[Any] | None:
    """Return the serde of what an expression computes; None if it is unknown."""
    if isinstance(found.node, Struct):
        if found.node.into is not None:
            return serde_of(found.node.into)
        return None if isinstance(here.draft.default_value, (Json, MsgPack)) else serde_of(dict)
    kind = kind_of(found.node, records)
    return None if kind is None or kind.of is None else serde_of(kind.of)


def aggregates_of(here: Place, into: Any, given: Mapping[str, Any], line: Line, *, of_table: bool = False) -> Aggregates:
    """Return the aggregates of the verb `agg`; reject those that cannot be computed, or not kept in `into`."""
    for name, aggregate in given.items():
        if not isinstance(aggregate, Aggregate):
            raise TopologyError(f"agg: {name}= is an aggregate such as agg.sum(col('amount')), not {aggregate!r} ({line}).")
    if not given:
        raise TopologyError(f"agg needs at least one aggregate, as in agg(n=agg.count()) ({line}).")
    node = Aggregates(tuple((name, each.node) for name, each in given.items()), class_of_fields("agg", into, given))
    check(node, records_of(here), "agg", line)
    fields = {} if node.into is None else fields_of(node.into) or {}
    for name, part in node.fields:
        if of_table and part.function not in (Function.COUNT, Function.SUM, Function.MEAN):
            raise TopologyError(
                f"agg of a grouped table cannot have {name}={part.describe()} ({line}): when an entry changes, its old value is "
                "subtracted, which only count, sum and mean can do."
            )
        if node.into is not None and part.function in STATES:
            raise TopologyError(
                f"agg: {name}={part.describe()} keeps more than its result, for which {into.__name__} has no place ({line}): "
                f"leave out into=, and follow agg with map_values(struct(into={into.__name__}, {name}=col({name!r}), ...))."
            )
        kind = _kind(
            part.function, None if part.operand is None else kind_of(part.operand, records_of(here)), part.describe(), line
        )
        if name in fields:
            _check_field(f"{into.__name__}.{name}", fields[name], part.function, kind, line)
    return node


def refuse_taken_names(name: Any, store: Any, line: Line) -> None:
    """Reject aggregates that are called like another argument of `agg`."""
    for argument, value in (("name", name), ("store", store)):
        if isinstance(value, Aggregate):
            raise TopologyError(f"agg: {argument}= is taken, so no aggregate can be called {argument!r} ({line}): rename it.")


def _node(given: Any, verb: str, line: Line) -> Node:
    if not isinstance(given, Expression):
        raise TopologyError(f"{verb} takes one function, or any number of expressions, not {given!r} among them ({line}).")
    return given.node


def _kind(function: Function, operand: Kind | None, text: str, line: Line) -> Kind | None:
    """Return the kind of an aggregate's result."""
    if function is Function.COUNT:
        return INT
    if operand is not None and not operand.is_scalar:
        raise TopologyError(f"{text} is over values of type {operand.name} ({line}): aggregates take bool, int, float and str.")
    if function in (Function.SUM, Function.MEAN):
        if operand is not None and not operand.is_number:
            raise TopologyError(f"{text} adds values of type {operand.name}, which are no numbers ({line}).")
        return operand or NUMBER
    return operand


def _check_field(field: str, of: FieldType, function: Function, kind: Kind | None, line: Line) -> None:
    if of.kind is not None and not of.kind.is_scalar:
        raise TopologyError(f"{field} is {of.kind.name}, but an aggregate is bool, int, float or str ({line}).")
    if function not in (Function.COUNT, Function.SUM) and not of.takes_none:
        raise TopologyError(
            f"{field} must accept None, because {function.value} is null until there is a value ({line}): "
            f"declare it as {of.kind.name if of.kind else 'int'} | None."
        )
    fits = kind is None or of.kind is None or kind == of.kind or (kind.is_number and of.kind in (FLOAT, NUMBER))
    if not fits and not (kind == NUMBER and of.kind == INT):  # an int for all we know, and checked for every record
        raise TopologyError(
            f"{field} is {of.kind.name if of.kind else ''}, but the {function.value} is {kind.name if kind else ''} ({line})."
        )
