"""Checks of the users' functions while the topology is declared: does each accept the arguments it will be called with?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from penstock.calls import is_async
from penstock.errors import TopologyError
from penstock.errors.lines import Line
from penstock.records import OnRecord

F = TypeVar("F", bound=Callable[..., Any])


def checked(function: F, arguments: str, verb: str, line: Line) -> F:
    """Return the function after checking that it accepts `arguments` (a comma-separated list of their meanings)."""
    checked_call(function, arguments, verb, line)
    if is_async(function):
        raise TopologyError(
            f"{verb} uses what its function returns, but {_name(function)} is async def, and returns a coroutine ({line}): "
            f"use map_values_async, map_async or process_async."
        )
    return function


def checked_call(function: F, arguments: str, verb: str, line: Line) -> F:
    """The same for verbs that take `async def` too."""
    if isinstance(function, OnRecord):
        raise TopologyError(
            f"{verb} cannot take on_record ({line}): use it in a verb of the stream before, as in map_values(on_record(...))."
        )
    if not callable(function):
        cure = f"lambda {arguments}: …" if arguments else f"{type(function).__name__}, which makes a new one each time"
        raise TopologyError(f"{verb} needs a function of ({arguments}), not {function!r} ({line}): write {cure}.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-ins without a signature are not checked
        return function
    try:
        signature.bind(*[None] * len(arguments.split(", ")) if arguments else ())
    except TypeError:
        cure = f"lambda {arguments}: …" if arguments else f"lambda: {_name(function)}(…)"
        raise TopologyError(
            f"{verb} calls its function with ({arguments}), but {_name(function)}{signature} does not accept that ({line}): "
            f"write {cure}."
        ) from None
    return function


def checked_initializer(function: F, verb: str, line: Line) -> F:
    """Return the function after checking that it makes a new value each time: keys must not share one that can change."""
    checked(function, "", verb, line)
    made: list[Any] = []
    with suppress(Exception):  # it is called again for a record, and its failure is that record's
        made += [function(), function()]
    if made and made[0] is made[1] and type(made[0]).__hash__ is None:
        kind = type(made[0]).__name__
        raise TopologyError(
            f"{verb} returns the same {kind} each time, so that all keys would share it ({line}): "
            f"return a new one, such as {kind}() or a copy."
        )
    return function


def checked_supplier(function: F, setup: Callable[[], Any] | None, verb: str, line: Line) -> F:
    """Return what makes processors after checking that it accepts the client of `setup=`, or nothing without it."""
    if setup is not None:
        checked_call(setup, "", f"{verb}'s setup=", line)
        if is_async(setup):
            raise TopologyError(
                f"{verb}'s setup= must not be async def, because a processor is not ({line}): open a client that blocks, or use "
                f"process_async or map_values_async."
            )
    return checked(function, "" if setup is None else "client", verb, line)


def checked_on_record(function: F, arguments: str, verb: str, line: Line) -> F:
    """The same for verbs that take `on_record` too."""
    if not isinstance(function, OnRecord):
        return checked(function, arguments, verb, line)
    checked(function.function, "record", f"{verb} with on_record", line)
    return function


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
