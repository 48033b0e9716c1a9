"""Checks of the users' functions while the topology is declared: does each accept the arguments it will be called with?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.errors import TopologyError
from penstock.errors.lines import Line
from penstock.records import OnRecord

F = TypeVar("F", bound=Callable[..., Any])


def checked(function: F, arguments: str, verb: str, line: Line) -> F:
    """Return the function after checking that it accepts `arguments` (a comma-separated list of their meanings)."""
    if isinstance(function, OnRecord):
        raise TopologyError(
            f"{verb} cannot take on_record ({line}): use it in a verb of the stream before, as in map_values(on_record(...))."
        )
    if not callable(function):
        raise TopologyError(f"{verb} needs a function of ({arguments}), not {function!r} ({line}).")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-ins without a signature are not checked
        return function
    try:
        signature.bind(*[None] * len(arguments.split(", ")) if arguments else ())
    except TypeError:
        name = getattr(function, "__qualname__", repr(function))
        raise TopologyError(
            f"{verb} calls its function with ({arguments}), but {name}{signature} does not accept that ({line})."
        ) from None
    return function


def checked_on_record(function: F, arguments: str, verb: str, line: Line) -> F:
    """The same for verbs that take `on_record` too."""
    if not isinstance(function, OnRecord):
        return checked(function, arguments, verb, line)
    checked(function.function, "record", f"{verb} with on_record", line)
    return function
