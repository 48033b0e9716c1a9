"""A finding of `penstock doctor`: what was looked at, how it is, and the cure if it is not well."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    """It works, and may not under load or after a fault."""
    FAIL = "fail"
    """The application would not run."""


class Finding(NamedTuple):
    """One line of the report."""

    what: str
    level: Level
    found: str
    cure: str = ""


def ok(what: str, found: str) -> Finding:
    """All is well."""
    return Finding(what, Level.OK, found)


def warn(what: str, found: str, cure: str) -> Finding:
    """It may hurt."""
    return Finding(what, Level.WARN, found, cure)


def fail(what: str, found: str, cure: str) -> Finding:
    """It does hurt."""
    return Finding(what, Level.FAIL, found, cure)
