"""The error that ends an application, as one of Penstock's."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import PenstockError, text_of
from penstock.state.disks import disk_error

_LONGEST = 4_000


def explained(error: BaseException, state_dir: Path) -> PenstockError:
    """Return an error of ours as it is, one of a disk with its cure, and any other with its text, which may be Spark's report."""
    if isinstance(error, PenstockError):
        return error
    of_disk = disk_error(error, state_dir)
    if of_disk is not None:
        return of_disk
    return PenstockError(f"Unexpected failure: {type(error).__name__}: {text_of(error)[:_LONGEST]}")
