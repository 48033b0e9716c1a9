"""Penstock's side of the page: names are looked up and arguments checked against signatures, so that no row goes stale."""

from __future__ import annotations

import importlib
import inspect
from enum import Enum
from typing import Any

from verification.conformance.parity.rules import Arguments, Method, To

COMMON: Arguments = {
    "Aggregator": "aggregator",
    "BiFunction": "on=, with_key=True",
    "Consumed": "key=, value=, timestamp=, reset=, name=",
    "EmitStrategy": "strategy",
    "ForeachAction": "action",
    "Function": "on=",
    "GlobalKTable": "other",
    "Grouped": "key=, value=, name=",
    "Initializer": "initializer",
    "JoinWindows": "within=, grace=",
    "Joined": "key=, value=, other_value=, grace=, name=",
    "KStream": "other",
    "KTable": "other",
    "KeyValueMapper": "mapper",
    "Materialized": "store=",
    "Merger": "merger",
    "Named": "name=",
    "Predicate": "predicate",
    "Produced": "key=, value=, partitioner=, name=",
    "Reducer": "reducer",
    "Repartitioned": "name=, key=, value=, partitions=, partitioner=",
    "SessionWindows": "windows",
    "SlidingWindows": "windows",
    "StreamJoined": "key=, value=, other_value=, name=, store_name=, logging=",
    "Suppressed": "suppressed",
    "TableJoined": "name=",
    "ValueJoiner": "joiner",
    "ValueJoinerWithKey": "joiner, with_key=True",
    "ValueMapper": "mapper",
    "ValueMapperWithKey": "mapper, with_key=True",
    "Windows": "windows",
}
"""The equivalent of a parameter of these types, unless a rule overrides it."""


class StaleNameError(Exception):
    """The mapping names something that Penstock does not have."""


def resolve(target: str) -> Any:
    """The object of a dotted name; None for an attribute that only instances have."""
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                if isinstance(found, type) and part == parts[-1] and part in _annotated(found):
                    return None
                raise StaleNameError(f"{target}: there is no {part!r} in {found!r}")
            found = getattr(found, part)
        return found
    raise StaleNameError(f"{target}: no such module")


def call(method: Method, to: To) -> str:
    """The checked call in Penstock that is equivalent to the method."""
    found = resolve(to.target)
    arguments = list(dict.fromkeys(_split(to.fixed) + _arguments(method, to.arguments)))
    shown = to.target.removeprefix("penstock.")
    if to.bare or not callable(found) or (isinstance(found, type) and issubclass(found, Enum)):
        if arguments:
            raise StaleNameError(f"{to.target} takes no arguments, not {', '.join(arguments)}")
        return shown
    positional = [argument for argument in arguments if "=" not in argument]
    keywords = [argument for argument in arguments if "=" in argument]
    ordered = _checked(to.target, found, positional, [keyword.partition("=")[0] for keyword in keywords])
    return f"{shown}({', '.join([*ordered, *(k + '…' if k.endswith('=') else k for k in keywords)])})"


def _checked(target: str, found: Any, positional: list[str], keywords: list[str]) -> list[str]:
    """The positional arguments in the order of the signature; raise if it lacks one of the arguments."""
    known = inspect.signature(found).parameters
    for argument in positional:
        if argument not in known or known[argument].kind is inspect.Parameter.KEYWORD_ONLY:
            raise StaleNameError(f"{target} has no argument {argument!r}")
    for keyword in keywords:
        if keyword not in known or known[keyword].kind is inspect.Parameter.POSITIONAL_ONLY:
            raise StaleNameError(f"{target} has no keyword argument {keyword!r}")
    order = [name for name in known if name in positional]
    # A parameter as text begins with its stars: `*predicates: Any`.
    return [str(known[name]).partition(name)[0] + name for name in order]


def _arguments(method: Method, own: Arguments) -> list[str]:
    found: list[str] = []
    seen: dict[str, int] = {}
    for parameter in method.parameters:
        said = own.get(parameter, COMMON.get(parameter))
        if said is None:
            raise StaleNameError(f"{method.owner}.{method.signature}: {parameter} has no equivalent")
        index = seen[parameter] = seen.get(parameter, -1) + 1
        found += _split(said if isinstance(said, str) else said[min(index, len(said) - 1)])
    return found


def _split(arguments: str) -> list[str]:
    return [argument.strip() for argument in arguments.split(",") if argument.strip()]


def _annotated(owner: type) -> set[str]:
    return {name for part in owner.__mro__ for name in vars(part).get("__annotations__", {})}
