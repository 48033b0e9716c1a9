"""A program as bytes for the processes that run it; if that fails, an error that names the node and the object."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pickle import PicklingError
from typing import Any

import cloudpickle

from penstock.epochs.program import Program
from penstock.errors import TopologyError
from penstock.topology import ProcessorNode

_REASONS = (PicklingError, TypeError, AttributeError, ValueError, NotImplementedError, RecursionError)
"""What objects raise that cannot be pickled."""

_CURE = (
    "Open connections, locks and files where they are used: in a processor's init, or with setup= of an asynchronous verb. "
    "Other values can be passed if they can be pickled"
)


def packed(program: Program, whole: object) -> bytes:
    """Return `whole`, which contains the program, as bytes."""
    try:
        content: bytes = cloudpickle.dumps(whole)
    except _REASONS as error:
        raise TopologyError(_told(program, error)) from error
    return content


def _told(program: Program, error: Exception) -> str:
    for node in program.nodes.values():
        why = _reason(node)
        if why is not None:
            name = _variable(node.operator) if isinstance(node, ProcessorNode) else None
            what = "what its functions refer to" if name is None else f"{name}, to which its function refers,"
            return f"{node.name} runs in other processes, but {what} cannot be pickled: {why} ({node.line}). {_CURE}."
    return f"The application cannot be sent to its slots: {error}. {_CURE}."


def _reason(value: object) -> Exception | None:
    """Return why a value cannot be pickled; None if it can."""
    try:
        cloudpickle.dumps(value)
    except _REASONS as error:
        return error
    return None


def _variable(operator: Any) -> str | None:
    """Return the variable of an operator's function that cannot be pickled; None if it is something else."""
    for function in _functions(operator):
        variables = inspect.getclosurevars(function)
        for name, value in {**variables.globals, **variables.nonlocals}.items():
            if not inspect.ismodule(value) and _reason(value) is not None:
                return repr(name)
    return None


def _functions(operator: Any) -> Iterator[Any]:
    for field in fields(operator):
        value = getattr(operator, field.name)
        yield from (value,) if inspect.isfunction(value) else ()
