"""The types that users' functions and processors say in their annotations, and the serdes that follow from them.

An annotation never changes bytes that would be written without it: where the default serde reads such values back as they were,
it stays. What it would refuse gets the serde of its type.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.dsl.draft import Draft
from penstock.dsl.expressions import class_of
from penstock.dsl.place import given_serde
from penstock.operators.asynchronous import CallContext
from penstock.operators.processors import class_of_made
from penstock.processor import Processor, ValueTransformer
from penstock.records import OnRecord, SideOutput
from penstock.serdes import Json, MsgPack, Serde, serde_of
from penstock.serdes.plain import JSON_NATIVES, MSGPACK_NATIVES
from penstock.topology import Line

BY_PROCESSOR = "Processor[..., {type}] for the class in {verb} ({line}), or value={type} there"
BY_TRANSFORMER = "ValueTransformer[..., {type}] for the class in {verb} ({line}), or value={type} there"
BY_JOINER = "-> {type} at the function of {verb} ({line}), or value={type} in the verb below"
BY_VALUE = "value={type} in {verb} ({line})"
_BY_FUNCTION = "-> {type} at the function of {verb} ({line}), or value={type} there"

Pair = tuple[Any, Any]
"""The types of key and value. A type that is not known is None."""

_UNKNOWN: Pair = (None, None)
_AWAITABLE = (Awaitable, Coroutine)
_ITERABLE = (list, tuple, set, frozenset, Iterable, Iterator, Generator, Sequence, Collection)


# ---- the serdes --------------------------------------------------------------------------------------------------------


def value_made(draft: Draft, given: Any, kind: Any, verb: str, line: Line, where: str = _BY_FUNCTION) -> Serde[Any]:
    """Return the serde of the values that a verb makes: as `value=` or their type says, or else the default one.

    If the default one refuses a value, its error says `where` its type can be declared: with the verb and its line.
    """
    default = draft.default_value
    found = given_serde(given) or _serde_said(kind, default)
    if found is not None:
        return found
    if isinstance(default, (Json, MsgPack)):
        return default.declared_by(where.format(verb=verb, line=line, type="{type}"))
    return default


def value_kept(draft: Draft, known: Serde[Any] | None, reducer: Any) -> Serde[Any] | None:
    """Return the serde of reduced values: the one that is known from upstream, or else that of the reducer's type."""
    if known is not None and known != draft.default_value:
        return known
    return _serde_said(returned(reducer), draft.default_value) or known


def aggregate_made(draft: Draft, initializer: Any, aggregators: Iterable[Any], line: Line) -> Serde[Any]:
    """Return the serde of aggregates, whose type an aggregator or the initializer says."""
    kinds = (returned(function) for function in (*aggregators, initializer))
    kind = next((kind for kind in kinds if kind is not None), None)
    return value_made(draft, None, kind, "aggregate", line)


def key_made(draft: Draft, given: Any, kind: Any) -> Serde[Any] | None:
    """Return the serde of the keys that a verb makes: as `key=` or their type says; None for the default one."""
    return given_serde(given) or _serde_said(kind, draft.default_key)


def _serde_said(kind: Any, default: Serde[Any]) -> Serde[Any] | None:
    """Return the serde of a type; None if it is not known, has no serde, or the default one is as good."""
    kind = _without(kind, types.NoneType, SideOutput)
    if kind in (None, types.NoneType, Any, object):
        return None
    natives = MSGPACK_NATIVES if isinstance(default, MsgPack) else JSON_NATIVES
    is_untyped = isinstance(default, (Json, MsgPack)) and default.of is Any
    try:
        if _is_plain(kind, natives) if is_untyped else class_of(default) in (None, kind):
            return None
        found = serde_of(kind)
        return MsgPack(kind) if isinstance(default, MsgPack) and isinstance(found, Json) else found
    except (TypeError, NameError):  # no serde has it: it may never be written, and if it is, the default one refuses it
        return None


def _is_plain(kind: Any, natives: Collection[type], around: tuple[Any, ...] = ()) -> bool:
    """Whether an untyped document reads values of a type back as they were; `around` are the TypedDicts that it is in."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType, list):
        return all(_is_plain(each, natives, around) for each in arguments)
    if origin is dict:
        return _is_plain(arguments[0], {str}) and _is_plain(arguments[1], natives, around)
    if origin is Literal:
        return all(type(each) in natives for each in arguments)
    if origin is Annotated:
        return _is_plain(arguments[0], natives, around)
    if hasattr(kind, "__supertype__"):  # a typing.NewType
        return _is_plain(kind.__supertype__, natives, around)
    if isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__total__"):  # a TypedDict, perhaps of itself
        return kind in around or all(_is_plain(each, natives, (*around, kind)) for each in get_type_hints(kind).values())
    return kind in natives or kind in (dict, list, Any, object) or isinstance(kind, TypeVar)


def _without(kind: Any, *left_out: type) -> Any:
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    kept = tuple(each for each in get_args(kind) if each not in left_out)
    return reduce(or_, kept) if kept else None


# ---- the types ---------------------------------------------------------------------------------------------------------


def returned(function: Any) -> Any:
    """Return the type of a function's results, as its annotation says; that of a class is the class. None if it is not known."""
    function = _plain_function(function)
    if isinstance(function, type):
        return function
    kind = _annotations(function).get("return")
    while get_origin(kind) in _AWAITABLE:
        kind = get_args(kind)[-1]
    return kind


def pair_of(kind: Any) -> Pair:
    """Return the types of key and value of a pair."""
    kind = _without(kind, types.NoneType, SideOutput)
    arguments = get_args(kind)
    is_pair = get_origin(kind) is tuple and len(arguments) == 2 and arguments[1] is not Ellipsis
    return (arguments[0], arguments[1]) if is_pair else _UNKNOWN


def items_of(kind: Any) -> Any:
    """Return the type of the items of an iterable."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return None
    return arguments[0] if origin in _ITERABLE and arguments else None


def forwarded(supplier: Any) -> Pair:
    """Return the types of keys and values that a processor forwards, the last two parameters of `Processor[...]`."""
    parameters = _parameters(class_of_made(supplier), Processor)
    return (parameters[2], parameters[3]) if len(parameters) == 4 else _UNKNOWN


def transformed(supplier: Any) -> Any:
    """Return the type of a transformer's results, the last parameter of `ValueTransformer[...]`."""
    parameters = _parameters(class_of_made(supplier), ValueTransformer)
    return parameters[2] if len(parameters) == 3 else None


def forwarded_by_call(function: Any) -> Pair:
    """Return the types that a function of `process_async` forwards, the parameters of its `CallContext[...]`."""
    for kind in _annotations(_plain_function(function)).values():
        if get_origin(kind) is CallContext:
            key, value = get_args(kind)
            return key, value
    return _UNKNOWN


def _plain_function(function: Any) -> Any:
    """Return the function within a partial, within `on_record`, or behind an object that can be called."""
    while isinstance(function, (partial, OnRecord)):
        function = function.func if isinstance(function, partial) else function.function
    if isinstance(function, type) or inspect.isroutine(function):
        return function
    return type(function).__call__


def _annotations(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotations of a function that can be resolved: by its globals, and the variables around it that it uses."""
    annotations: Mapping[str, Any] = {}
    with suppress(Exception):  # they may be evaluated only now
        annotations = getattr(function, "__annotations__", {})
    inner = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)
    return _resolved(annotations, getattr(inner, "__globals__", {}), _around(inner))


def _around(function: Any) -> dict[str, Any]:
    names, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    found: dict[str, Any] = {}
    for name, cell in zip(names.co_freevars if names else (), cells or (), strict=False):
        with suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


def _resolved(annotations: Mapping[str, Any], known: dict[str, Any], around: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, annotation in annotations.items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        with suppress(Exception):  # it is the user's code, and may name what exists for a type checker only
            found |= get_type_hints(holder, known, around, include_extras=True)
    return found


def _parameters(kind: type | None, generic: type) -> tuple[Any, ...]:
    """Return the parameters of a generic class as a subclass sets them."""
    for base in () if kind is None else vars(kind).get("__orig_bases__", kind.__bases__):
        origin = get_origin(base) or base
        if not isinstance(origin, type) or not issubclass(origin, generic):
            continue
        own = get_args(base)
        if origin is generic:
            return own
        set_by_base = dict(zip(getattr(origin, "__parameters__", ()), own, strict=False))
        return tuple(set_by_base.get(each, each) for each in _parameters(origin, generic))
    return ()
