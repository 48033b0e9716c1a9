"""The error that ends an application, as one of Penstock's."""

from __future__ import annotations

from penstock.errors import PenstockError

_LONGEST = 4_000


def explained(error: BaseException) -> PenstockError:
    """Return an error of ours as it is, and any other with its text: of a Spark job, that is Spark's report."""
    if isinstance(error, PenstockError):
        return error
    return PenstockError(f"Unexpected failure: {type(error).__name__}: {str(error)[:_LONGEST]}")
