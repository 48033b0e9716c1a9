"""Errors of users' functions and processors in other words: what Python says about them does not name the mistake."""

from __future__ import annotations

from penstock.errors import Raised, text_of
from penstock.errors.lines import PACKAGE
from penstock.processor import Processor

PAIR = "a pair (key, value)"
PAIRS = "an iterable of pairs (key, value)"
VALUES = "an iterable of values"

_SIGNS = ("unpack", "not iterable")


def explained_context(error: Raised) -> Raised:
    """Return the error of a processor; if it has no context, one that says why."""
    if not isinstance(error, AttributeError) or error.name != "context" or not isinstance(error.obj, Processor):
        return error
    told = AttributeError(f"{error}: its init must call super().init(context), or set self.context")
    told.__cause__ = error
    return told


def explained(error: Raised, returns: str) -> Raised:
    """Return the error; if an operator could not use what a function returned, one that says what it must return."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_ours = trace is not None and trace.tb_frame.f_code.co_filename.startswith(PACKAGE)
    if not is_ours or type(error) not in {TypeError, ValueError} or not any(sign in text_of(error) for sign in _SIGNS):
        return error
    told = TypeError(f"the function must return {returns}: {text_of(error)}")
    told.__cause__ = error
    return told
