"""What user code raises: which of it is a failure of a record, and what it says."""

from __future__ import annotations

FAILURES = (Exception, SystemExit)
"""What is a failure when user code raises it. `sys.exit` in a function is one, too: an application ends as its handlers say."""

Raised = Exception | SystemExit


def failure_of(raised: BaseException) -> Exception:
    """Return what user code has raised as the error that handlers get."""
    if isinstance(raised, Exception):
        return raised
    what = f"sys.exit({shown(raised.code)})" if isinstance(raised, SystemExit) else type(raised).__name__
    told = RuntimeError(f"The function ended with {what}: raise an error instead.")
    told.__cause__ = raised
    return told


def text_of(error: BaseException) -> str:
    """Return what an error says; if it fails to, say so."""
    try:
        return str(error)
    except FAILURES as another:
        return f"(its __str__ raises {type(another).__name__})"


def shown(value: object) -> str:
    """Return a value of the user's as text for a message."""
    try:
        return repr(value)
    except FAILURES as error:
        return f"<{type(value).__name__}, whose __repr__ raises {type(error).__name__}>"
